#!/usr/bin/env bash
# tests/busy.sh COMMAND: runs it while two processes spin.
set -eu
spinning=()
trap 'kill "${spinning[@]}" 2>/dev/null || true' EXIT
for _ in 1 2; do
  (while :; do :; done) &
  spinning+=($!)
done
"$@"
