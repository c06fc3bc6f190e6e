#!/usr/bin/env bash
# Installs what fusetools is built and run with, and with the argument `tests` what it is tested
# with. Idempotent: installs only what is missing, and says what. Debian and Ubuntu through apt;
# elsewhere it names what is missing.
set -eu

# What                          why
packages=(
  linux-perf:perf             # records; the reference reader in the tests
  trace-cmd                   # records function_graph
  fuse3                       # mounts (fusermount3)
  libfuse3-dev                # the sample file system
  g++ make pkg-config
  python3-venv
)
tests=(
  python3-dev                 # Rust's tests of the binding
  libtraceevent1              # the reference decoder
  zstd                        # the compressed recordings
  debuginfod                  # a server of debug files
  elfutils                    # separate debug files
  hyperfine                   # the reference clock of `overhead`; the benchmarks
  mandoc                      # checks the man pages
  procps                      # looks for processes
  shellcheck                  # checks the scripts that `script` prints
  chromium-driver:chromedriver  # looks at pages
  fonts-dejavu-core           # … and reads what is written there
  openssl                     # certificates for `serve`
  prometheus                  # scrapes `serve`; promtool tests the alert rules
  poppler-utils:pdftoppm      # … also on paper
  qemu-system-x86:qemu-system-x86_64   # other kernels
  strace                      # the reference of system calls' counts
  sudo                        # a user who may record and nothing else
  systemd:systemctl           # the flight recorder's unit, in a virtual machine
)
# Real file systems. 20 MB to download, of which rclone has 15; 80 MB on disk.
filesystems=(
  bindfs sshfs openssh-sftp-server fuse-overlayfs squashfuse squashfs-tools:mksquashfs mergerfs
  unionfs-fuse ntfs-3g gocryptfs rclone python3-pyfuse3 fuse2fs
)
[ "${1:-}" != tests ] || packages+=("${tests[@]}" "${filesystems[@]}")

say() { echo "install: $*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Rust: any recent toolchain will do. Debian 12's own cargo is too old, its cargo-web is not.
export PATH="$HOME/.cargo/bin:$PATH"
recent_rust() {
  local v
  v=$(rustc --version 2>/dev/null | sed -n 's/^rustc 1\.\([0-9]*\).*/\1/p')
  [ "${v:-0}" -ge 85 ] && command -v cargo >/dev/null
}

missing=()
for entry in "${packages[@]}"; do
  package=${entry%%:*}
  command=${entry#*:}
  # A command that is there counts, wherever it came from (perf of another kernel package …).
  [ "$command" != "$package" ] && command -v "$command" >/dev/null && continue
  if command -v dpkg-query >/dev/null; then
    installed "$package" || missing+=("$package")
  else
    command -v "$command" >/dev/null || missing+=("$package")
  fi
done
if ! recent_rust; then
  missing+=(cargo-web rustc-web)
fi
# rustup's comes with both.
if [ "${1:-}" = tests ] && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
  missing+=(rustfmt-web rust-web-clippy)
fi

if [ ${#missing[@]} -eq 0 ]; then
  say "everything is there"
elif ! command -v apt-get >/dev/null; then
  say "this is not a Debian or Ubuntu; install what these are here, then try again: ${missing[*]}" >&2
  exit 1
else
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    say "needs root to install packages; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get -qq update
  # Not every release has all of these: the tests that need one are skipped, and say so.
  others=()
  for package in "${missing[@]}"; do
    case " chromium-driver debuginfod ${filesystems[*]%%:*} " in
      *" $package "*) apt-cache show "$package" >/dev/null 2>&1 || continue ;;
    esac
    others+=("$package")
  done
  missing=("${others[@]}")
  as_root apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
  # The tests start their own server.
  for package in debuginfod prometheus; do
    case " ${missing[*]} " in
      *" $package "*) as_root systemctl disable --quiet --now "$package" 2>/dev/null || true ;;
    esac
  done
fi
recent_rust || { say "no Rust 1.85 or newer: https://rustup.rs" >&2; exit 1; }

# systemd mounts tracefs at boot; where there is none it is left to us.
if [ -d /sys/kernel/tracing ] && ! as_root test -e /sys/kernel/tracing/events 2>/dev/null &&
  as_root mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null; then
  say "mounted tracefs on /sys/kernel/tracing"
fi
