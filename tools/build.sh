#!/usr/bin/env bash
# Builds fusetools into a virtual environment, by default .venv, which has what it needs. The install is
# editable: a change in Python needs no new build.
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.venv}

log=$venv/build.log
echo "build: fusetools into $venv (takes minutes; log: $log)"
# flame/ was fusetools/flame/ once. The rest of an old build there hides the package from Python.
[ -e fusetools/flame/__init__.py ] || rm -rf fusetools/flame
if ! SETUPTOOLS_RUST_CARGO_PROFILE=release \
  "$venv/bin/python" -m pip install --verbose --no-deps --editable . >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "build: failed; full log: $log" >&2
  exit 1
fi
# Without this, each command compiles the modules again wherever Python may not write.
"$venv/bin/python" -m compileall -q fusetools flame configs
