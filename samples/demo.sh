#!/usr/bin/env bash
# Mount the sample file system, record a workload on it, and show the recording.
# A host that cannot record shows a stored recording.
set -eu
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
show() {
  local command="$*"
  printf '\n$ %s\n' "${command/"env PATH=$PATH "/}"
  "$@"
}
answers() {
  show fusetools why "$@"
  show fusetools stages "$@"
  show fusetools slow -n 1 "$@"
  show fusetools flame --offcpu "$@"
  printf '\nThe picture of what was waited for is %s. All on one page: %s\n' \
    "$PWD/flame.html" "fusetools report${2+ $2}"
}

# Only the recording needs root; sudo sets another PATH. Without a terminal it cannot ask for a password.
as_root=()
if [ "$(id -u)" != 0 ] && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
  as_root=(sudo env "PATH=$PATH")
fi

work=$(mktemp -d)
tree=$work/tree
mnt=$work/mnt
finish() {
  ! mountpoint -q "$mnt" || fusermount3 -u "$mnt"
  rm -rf "$work"
}
trap finish EXIT

# Without caches, with a delay of 50 us in each lookup and of 2 ms in 1 % of reads, for fusetools to find.
samples/build/make_tree "$tree"
mkdir "$mnt"
mounted=yes
show samples/build/with-symbols/samplefs --kernel-cache=0 \
  --delay lookup=50us --delay read=2ms:1% "$tree" "$mnt" || mounted=no

if [ $mounted = no ] || ! doctor=$("${as_root[@]}" fusetools doctor); then
  printf '%s\n' "${doctor-}"
  echo 'demo: this host may not record (see above); here is a recording made before'
  answers -i samples/recordings/demo.data
  exit
fi
show "${as_root[@]}" fusetools record --call-graph dwarf --mount "$mnt" -- find "$mnt" -size +1M
answers
