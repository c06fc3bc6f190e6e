# fusetools: `make demo` shows it at work, `make test` tests it; both install what they need.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(HOME)/.cargo/bin:$(PATH)
NATIVE := $(shell find fusetools/native flame/native -name '*.rs' -o -name Cargo.toml) Cargo.toml

.PHONY: help demo test test-kernels lint bench clean install build samples

help:
	@echo 'make demo           install what is needed, record a workload on the sample file system, show it'
	@echo 'make test           install what is needed, run all tests'
	@echo 'make test-kernels   the tests in virtual machines, on all of Debian'\''s kernels'
	@echo 'make lint           ruff, mypy, cargo fmt, clippy'
	@echo 'make bench          measure speed against stock perf'
	@echo 'make clean          remove what was built'

install:
	@./install.sh

build: $(VENV)/.built

# Editable, so that a change in Python needs no new build.
$(VENV)/.built: $(NATIVE) setup.cfg pyproject.toml
	@test -x $(PY) || python3 -m venv $(VENV)
	@echo 'building fusetools into $(VENV)'
	@SETUPTOOLS_RUST_CARGO_PROFILE=release $(PY) -m pip install --quiet --editable '.[test,lint]'
	@touch $@

samples:
	@$(MAKE) --no-print-directory -C samples/fs

lint: build
	ruff check .
	ruff format --check .
	mypy
	cargo fmt --all --check
	cargo clippy --quiet --all-targets -- -D warnings

test: install build samples lint
	cargo test --quiet
	$(PY) -m pytest

test-kernels: install build samples
	$(PY) -m pytest tests/vm --kernels all

demo: install build samples
	@samples/demo.sh

bench: install build
	$(PY) tests/bench/bench.py

clean:
	rm -rf target build $(VENV) *.egg-info samples/build tests/vm/build fusetools/*.so flame/*.so
