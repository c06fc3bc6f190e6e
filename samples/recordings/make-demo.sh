#!/usr/bin/env bash
# Make demo.data again, as root: run `make build samples`, then this script. It records in its own namespaces, so that paths
# and the host name are the same on every host, and blanks the names of unrelated processes.
set -eu
cd "$(dirname "$0")/../.."
if [ -z "${DEMO_INSIDE-}" ]; then
  # Use one CPU: some kernels hide the switches from another CPU's idle task from tracers, and a wait would have no end.
  DEMO_INSIDE=1 exec unshare -m -u --propagation private taskset -c 0 "$0"
fi
export PATH="$PWD/.venv/bin:$PATH"
here=$PWD/samples/recordings
tmp=$(mktemp -d)
mkdir "$tmp/bin"
cp -r samples/build/. "$tmp/bin"
hostname demo
mount -t tmpfs demo /opt
mount -t tmpfs demo /mnt
mkdir /opt/samples /mnt/sample
mount --bind "$tmp/bin" /opt/samples
finish() {
  cd /
  umount /mnt/sample || true
  sleep 0.2
  umount /opt/samples /opt /mnt
  rm -rf "$tmp"
}
trap finish EXIT

/opt/samples/make_tree "$tmp/tree"
# About a quarter of the lookups use the daemon's CPU for 25 ms, one read in ten waits 20 ms, some fail.
# chrt: the daemon runs before other work of the host, so that callers wait for the file system only.
chrt -r 1 /opt/samples/with-symbols/samplefs --kernel-cache=0 --delay lookup=25ms:spin:23% --delay read=20ms:10% \
  --error read=EIO:6% "$tmp/tree" /mnt/sample
cd /mnt/sample
# The first flush of a mount shows the kernel that there is none.
grep -s nothing dir-01/file-000 || true
# Copy all stacks: grep has no frame pointers either.
fusetools record --call-graph dwarf --mount /mnt/sample -o /opt/demo.data -- \
  chrt -r 1 grep -rs nothing dir-00/file-0[0-2]* deep missing 2>"$tmp/log" || true
cat "$tmp/log"
if grep 'the end of some waits' "$tmp/log"; then
  echo 'something else ran on this CPU: try again' >&2
  exit 1
fi
# merge writes uncompressed records: blank.py and tests change its bytes.
fusetools merge /opt/demo.data -o /opt/demo.data
python3 "$here/blank.py" /opt/demo.data grep chrt samplefs fusetools perf
cp /opt/demo.data "$here/demo.data"
