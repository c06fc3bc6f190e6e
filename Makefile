# fusetools: `make demo` shows it at work, `make test` tests it; both install what they need.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(HOME)/.cargo/bin:$(PATH)
# Without its cache Python compiles all modules again in each of some thousand commands.
unexport PYTHONDONTWRITEBYTECODE
NATIVE := $(shell find fusetools/native flame/native -name '*.rs' -o -name Cargo.toml) Cargo.toml

.PHONY: help demo test test-pure test-quick test-busy test-variants test-kernels test-arm64 test-spark test-faults test-kills test-leaks test-races test-snaps fuzz lint bench bench-instructions \
  clean compiled install install-tests uninstall build samples packages site test-why

help:
	@echo 'make demo           install what is needed, record a workload on the sample file system, show it'
	@echo 'make test           install what is needed, run all tests (STRICT=1: a live test fails without a second run)'
	@echo 'make test-quick     what runs in two minutes: linters, tests that record nothing and need no browser'
	@echo 'make test-busy      all tests twice, in a random order, on a machine kept busy'
	@echo 'make test-kernels   the tests in virtual machines, on all of Debian'\''s kernels'
	@echo 'make test-arm64     the Debian package for arm64, in a virtual machine'
	@echo 'make test-variants  the variants of live tests that make test leaves out'
	@echo 'make test-spark     fleet on Spark: installs it and Java, 400 MB'
	@echo 'make test-faults    all faults (kills, full disks, hung daemons …) in all phases of a recording'
	@echo 'make test-kills     recordings killed at N=1000 random moments'
	@echo 'make test-races     what another user who renames all that root makes can reach, in N=1000 rounds'
	@echo 'make test-leaks     what a user of sudo can read of others, in N=1000 combinations of limits, faults and kills'
	@echo 'make test-snaps     the memory of a flight recorder that writes N=500 recordings'
	@echo 'make test-why       twelve real problems, N=3 times each: fusetools why must name them first'
	@echo 'make fuzz           all readers of hostile files, for MINUTES=10'
	@echo 'make packages       wheels for four platforms, Debian and RPM packages, in dist/; each tried in a fresh Debian'
	@echo 'make site           build the site into docs/_build/html: guide, man pages, how to read each answer, problems'
	@echo 'make uninstall      remove the link that make demo made in /usr/local/bin'
	@echo 'make lint           ruff, mypy, oxlint, cargo fmt, clippy'
	@echo 'make bench          measure speed against stock perf, and what recording costs beside other tools'
	@echo 'make bench-instructions  the same in instructions, in virtual machines: no noise'
	@echo 'make clean          remove what was built'

install:
	@tools/install.sh

install-tests:
	@tools/install.sh tests

build: $(VENV)/.built

# Install what setup.cfg says that fusetools needs, and what these of its extras need.
install-extras = $(PY) -c 'import configparser, sys; p = configparser.ConfigParser(); p.read("setup.cfg"); \
  print(p["options"]["install_requires"], *(p["options.extras_require"][name] for name in sys.argv[1:]))' $(1) \
  | $(PY) -m pip install --quiet --no-compile --requirement /dev/stdin

$(VENV)/.needed: setup.cfg
	@[ -x $(PY) ] || python3 -m venv $(VENV)
	@$(call install-extras)
	@touch $@

$(VENV)/.built: $(VENV)/.needed $(NATIVE) pyproject.toml
	@tools/build.sh $(VENV)
	@touch $@

# It does not wait for the build, which installs nothing but fusetools.
$(VENV)/.extras: $(VENV)/.needed
	@echo 'installing what fusetools is tested with into $(VENV)'
	@$(call install-extras,test lint docs)
	@touch $@

$(VENV)/.tested: $(VENV)/.built $(VENV)/.extras
	@touch $@

# A guest shares this checkout, but cannot write into it.
compiled: $(VENV)/.built
	@$(PY) -m compileall -q fusetools flame

samples:
	@$(MAKE) --question -C samples/fs >/dev/null 2>&1 || \
	  { echo 'samples: compile the sample file system'; $(MAKE) --silent -C samples/fs; }

lint: $(VENV)/.tested
	ruff check .
	ruff format --check .
	$(PY) tools/english.py
	mypy
	for folder in live vm flamegraphs; do mypy --no-error-summary tests/$$folder/conftest.py; done
	mkdir -p target
	$(PY) -c 'from fusetools.flame.html import script; print(script())' >target/page.js
	oxlint --no-ignore --quiet target/page.js
	cargo fmt --all --check
	cargo clippy --quiet --release --all-targets -- -D warnings
	CUSTOM_LIBFUZZER_PATH=/dev/null cargo check --quiet --release --manifest-path tests/fuzz/Cargo.toml --target-dir target

# Tests that record and the virtual machines run side by side. Each test has a limit (setup.cfg); this is
# the limit of all. A live test that fails is run again, alone (CONTRIBUTING.md), but not with STRICT=1.
LIMIT := 75m
AGAIN = $(if $(STRICT),,--second-runs)
WITHIN = timeout --foreground --signal INT --kill-after 2m $(LIMIT)
PYTEST = $(WITHIN) $(PY) -m pytest --numprocesses 2 --dist loadgroup --durations 15 $(AGAIN)
OF_KERNELS := live or filesystems or vm
NOTED := --failed=target/failed.txt

# Tests that record wait more than they compute: the rest uses the CPUs meanwhile, at a low priority. The
# scheduler divides the CPUs among sessions first (autogroup, sched(7)): nice alone gave the rest half of them.
# Second runs wait for the lock: they are alone. The output ends with all failures, also those of flaky tests.
test: install-tests
	@$(MAKE) --no-print-directory --jobs 3 samples compiled $(VENV)/.tested
	@mkdir -p target
	@rm -f target/passed.json target/flaky.json target/failed.txt
	@echo 'the linters and the tests that need no kernel (target/pure.log) run beside those that record'
	setsid sh -c '{ echo 10 >/proc/self/autogroup; } 2>/dev/null; exec "$$@"' sh \
	    nice timeout --kill-after 2m $(LIMIT) flock --close target/pure.lock \
	    $(MAKE) --no-print-directory test-pure >target/pure.log 2>&1 & pure=$$!; \
	  trap 'kill -- -$$pure 2>/dev/null || true' EXIT; \
	  good=0; $(PYTEST) $(NOTED) -m '($(OF_KERNELS)) and not variant' tests/live tests/filesystems tests/vm tests/unit || good=$$?; \
	  wait $$pure || good=$$?; cat target/pure.log; trap - EXIT; cat target/failed.txt || true; exit $$good

# The unit tests run where nothing of this host can be seen, on one CPU; what passes there is not run
# again. What takes long to build is ready when tests come to it: a test's time is limited. Built with the
# Python module's crate, the core has the same features as in it: all that it needs is compiled already.
CORE := --quiet --release --package fusetools-core --package fusetools-py
test-pure: $(VENV)/.tested
	good=0; failed() { good=$$?; echo "failed: $$1" >>target/failed.txt; }; \
	  cargo build $(CORE) --examples || failed 'cargo build'; \
	  tests/bare.sh $(PY) -m pytest --quiet --passed=target/passed.json $(NOTED) -m 'not ($(OF_KERNELS))' tests/unit tests/flamegraphs \
	    >target/bare.log 2>&1 & bare=$$!; \
	  $(MAKE) --silent -C tests/filesystems/daemons ../build/fuserfs || true; \
	  $(MAKE) --no-print-directory lint || failed 'make lint'; \
	  cargo test $(CORE) || failed 'cargo test'; \
	  wait $$bare || good=$$?; cat target/bare.log; \
	  $(PY) -m pytest --quiet --numprocesses 2 --durations 15 $(NOTED) --but=target/passed.json -m 'not ($(OF_KERNELS))' || good=$$?; \
	  exit $$good

test-quick: install-tests lint
	$(PYTEST) tests/unit tests/flamegraphs -m 'not browser'

test-busy: STRICT := 1
test-busy: LIMIT := 120m
test-busy: install-tests samples $(VENV)/.tested
	tests/busy.sh $(PYTEST) --random-order
	tests/busy.sh $(PYTEST) --random-order

test-variants: install-tests samples compiled $(VENV)/.tested
	$(PYTEST) -m variant tests

test-kernels: install-tests samples compiled $(VENV)/.tested
	$(PY) -m pytest tests/vm --kernels all $(AGAIN)

# 400 MB, and Java.
test-spark: install-tests $(VENV)/.tested
	command -v java >/dev/null || $(if $(filter 0,$(shell id -u)),,sudo )apt-get install --yes default-jre-headless
	$(call install-extras,spark)
	$(PY) -m pytest --quiet tests/unit/test_fleet.py -k spark

test-arm64: install-tests
	@tools/packages/build.sh aarch64-unknown-linux-gnu
	$(PY) -m pytest tests/vm/test_arm64_in_guest.py --kernels arm64 $(AGAIN)

test-faults: install-tests samples $(VENV)/.tested
	FAULTS=all $(PY) -m pytest --quiet tests/live/test_faults_live.py $(AGAIN)

N := 1000
test-races: install-tests samples $(VENV)/.tested
	ROUNDS=$(N) $(PY) -m pytest --quiet tests/unit/test_output.py

test-leaks: install-tests samples $(VENV)/.tested
	$(PY) tests/faults/leaks.py $(N)

test-kills: install-tests samples $(VENV)/.tested
	$(PY) tests/faults/kills.py $(N)

test-snaps: N := 500
test-snaps: install-tests samples $(VENV)/.tested
	FUSETOOLS_FLIGHT_SNAPS=$(N) $(PY) -m pytest --timeout 0 tests/live/test_flight_live.py -k test_memory -s

test-why: N := 3
test-why: install-tests samples $(VENV)/.tested
	PYTHONPATH=tests:tests/live $(PY) tests/live/campaign.py $(N)

MINUTES := 10
fuzz: install-tests $(VENV)/.tested
	tests/fuzz/run.sh $(MINUTES)
	$(PY) tests/fuzz/texts.py $$((100 * $(MINUTES)))
	$(PY) tests/fuzz/differential.py $$((20 * $(MINUTES)))

demo: install build samples
	@tools/link.sh
	@samples/demo.sh

uninstall:
	@tools/link.sh remove

packages: build
	@tools/packages/build.sh $(TARGETS)
	@$(if $(filter 0,$(shell id -u)),,sudo )tools/packages/check.sh

site: $(VENV)/.tested
	@$(PY) docs/site/build.py

bench: install-tests samples $(VENV)/.tested
	cargo build $(CORE) --examples
	PYTHONPATH=tests $(PY) tests/bench/bench.py
	PYTHONPATH=tests $(PY) tests/bench/cost.py
	$(PY) -m pytest --quiet --capture no tests/flamegraphs/speed.py

bench-instructions: install-tests samples compiled $(VENV)/.tested
	PYTHONPATH=tests $(PY) tests/vm/instructions.py

clean:
	rm -rf target build docs/_build $(VENV) *.egg-info samples/build tests/vm/build tests/filesystems/build \
	  fusetools/*.so flame/*.so
