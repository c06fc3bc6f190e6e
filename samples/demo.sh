#!/usr/bin/env bash
# The main job on the sample file system: mount it, record a workload on it, look at the recording.
# A host that may not record gets a recording made before.
set -eu
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
show() { printf '\n$ %s\n' "$*"; "$@"; }

# Only the recording needs root; sudo has a PATH of its own.
as_root=()
if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then as_root=(sudo env "PATH=$PATH"); fi

if ! doctor=$("${as_root[@]}" fusetools doctor); then
  printf '%s\n' "$doctor"
  echo 'demo: this host may not record (see above); here is a recording made before'
  show fusetools hist lookup -i samples/recordings/demo.data
  show fusetools stages lookup -i samples/recordings/demo.data
  show fusetools flame --offcpu -i samples/recordings/demo.data
  exit
fi

work=$(mktemp -d)
tree=$work/tree
mnt=$work/mnt
finish() {
  ! mountpoint -q "$mnt" || fusermount3 -u "$mnt"
  rm -rf "$work"
}
trap finish EXIT

# Nothing is cached, a look-up costs 50 us, one read in a hundred 2 ms: something to be found.
samples/build/make_tree "$tree"
mkdir "$mnt"
show samples/build/with-symbols/samplefs --kernel-cache=0 \
  --delay lookup=50us --delay read=2ms:1% "$tree" "$mnt"
show "${as_root[@]}" fusetools doctor
show "${as_root[@]}" fusetools record --mount "$mnt" -- find "$mnt" -size +1M
show fusetools hist lookup
show fusetools stages lookup
show fusetools flame --offcpu
printf '\nThe recording is perf.data, and flame.html (for a browser) shows what was waited for. '
printf 'Try fusetools slow, fusetools count, perf script.\n'
