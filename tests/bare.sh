#!/usr/bin/env bash
# tests/bare.sh COMMAND: runs it where nothing of this host can be seen: no kernel symbols, no /sys,
# an empty home, no perf and no trace-cmd, another kernel release, host name, language, time zone
# and terminal width, one CPU. What passes here rests on nothing but the checkout. Needs root.
set -eu
if [ "$(id -u)" != 0 ]; then
  echo 'bare: skipped: hiding the host from the tests needs root'
  exit 0
fi

if [ "${1:-}" != --inside ]; then
  exec unshare --mount --uts --propagation private "$0" --inside "$@"
fi
shift
# Copies of tests' mounts would live on in this namespace.
awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) ~ /^fuse(blk)?($|[.])/) print $5 }' /proc/self/mountinfo |
  tac | while read -r path; do umount -lc "$(printf '%b' "$path")"; done
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
: >"$home/empty"
mount --bind "$home/empty" /proc/kallsyms
mount -t tmpfs none /sys
for tool in perf trace-cmd; do
  # A file that may not be run is none.
  ! path=$(command -v "$tool") || mount --bind "$home/empty" "$(realpath "$path")"
done
hostname elsewhere
mkdir "$home/home"
env HOME="$home/home" CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" \
  LANG=de_DE.UTF-8 LANGUAGE=de LC_ALL= TZ=Pacific/Chatham COLUMNS=137 LINES=11 TERM=dumb \
  setarch --uname-2.6 taskset --cpu-list "$(taskset -cp $$ | sed 's/.*: *//; s/[^0-9].*//')" "$@"
