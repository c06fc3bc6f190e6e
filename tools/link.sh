#!/usr/bin/env bash
# Links fusetools where sudo finds it; with the argument `remove` removes that link.
set -eu
cd "$(dirname "$0")/.."
link=/usr/local/bin/fusetools
program=$PWD/.venv/bin/fusetools
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

if [ "$(readlink "$link" || true)" = "$program" ]; then
  [ "${1:-}" != remove ] || as_root rm "$link"
elif [ "${1:-}" = remove ]; then
  echo "link: $link is not this clone's: left alone"
elif [ -e "$link" ] || [ -L "$link" ]; then
  echo "link: $link is there already: left alone"
else
  as_root ln -s "$program" "$link"
  echo "link: $link, so that sudo finds fusetools; make uninstall removes it"
fi
