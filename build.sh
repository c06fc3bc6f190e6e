#!/usr/bin/env bash
# Builds fusetools into the virtual environment .venv and says how far it is. Editable: a change in
# Python needs no new build.
set -eu
cd "$(dirname "$0")"
venv=${1:-.venv}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
log=$venv/build.log
echo "build: fusetools into $venv (what it prints is in $log)"
SETUPTOOLS_RUST_CARGO_PROFILE=release "$venv/bin/python" -m pip install --verbose --editable . \
  >"$log" 2>&1 &
pip=$!
trap 'kill $pip 2>/dev/null || true' EXIT

# On a terminal one line that changes, else a line now and then.
if [ -t 1 ]; then clear=$'\r\e[K' end='' pause=1; else clear='' end=$'\n' pause=15; fi
crates=$(grep -c '^name = ' Cargo.lock)
said=
step() {
  local done crate
  done=$(grep -cE '^ *Compiling ' "$log" || true)
  crate=$(sed -nE 's/^ *Compiling ([^ ]+).*/\1/p' "$log" | tail -n 1)
  if grep -qE '^ *Finished ' "$log"; then
    echo "Python packages"
  elif [ "$done" -gt 0 ]; then
    echo "Rust, crate $done of at most $crates: $crate"
  else
    echo "fetching what it is built with"
  fi
}
while kill -0 $pip 2>/dev/null; do
  for _ in $(seq "$pause"); do
    sleep 1
    kill -0 $pip 2>/dev/null || break
  done
  now=$(step)
  [ "$now" = "$said" ] || printf '%sbuild: %s%s' "$clear" "$now" "$end"
  said=$now
done
trap - EXIT
printf '%s' "$clear"
if ! wait $pip; then
  tail -n 40 "$log" >&2
  echo "build: failed; the whole of it is in $log" >&2
  exit 1
fi
# Else each command compiles it anew wherever Python may not write.
"$venv/bin/python" -m compileall -q fusetools
