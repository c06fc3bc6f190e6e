#!/usr/bin/env bash
# Builds the targets with AddressSanitizer and libFuzzer's coverage, as cargo-fuzz does, by the stable compiler.
#   run.sh build | run.sh MINUTES [TARGET ...]
set -eu
cd "$(dirname "$0")"
export RUSTC_BOOTSTRAP=1
flags="--cfg fuzzing -Zsanitizer=address -Ccodegen-units=1 -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
export RUSTFLAGS=$flags
exec cargo build --release --target x86_64-unknown-linux-gnu "$@"
