#!/bin/sh
# In the guest, into the current folder: records a workload on the sample file system with stock
# tools alone, function_graph by trace-cmd (trace.dat), the probes of the file `probes` by perf
# (perf.data). Then the sample's own counters (counters) and the workload's (workload.json).
# usage: full_path.sh samples/build
set -eu
samples=$1
tracing=/sys/kernel/tracing

mkdir /run/mount
"$samples/make_tree" /run/tree
"$samples/with-symbols/samplefs" --kernel-cache 0 --socket /run/talk /run/tree /run/mount
while read -r probe; do
  echo "$probe" >>$tracing/dynamic_events || { echo "refused: $probe" >&2; exit 1; }
done <probes

# trace-cmd before 3.0 knows no other version, and not the option.
version='--file-version 6'
trace-cmd record -h 2>&1 | grep -q -e --file-version || version=
# function_graph first, or it cuts the stacks that perf records.
trace-cmd record -p function_graph -l 'fuse_*' -C mono -b 16384 $version -o trace.dat >trace-cmd.log 2>&1 &
graph=$!
until [ "$(cat $tracing/current_tracer $tracing/tracing_on | xargs)" = 'function_graph 1' ]; do
  kill -0 $graph || { cat trace-cmd.log >&2; exit 1; }
  sleep 0.2
done
perf record -q -a -k CLOCK_MONOTONIC -N -B --no-bpf-event -o perf.data \
  -e 'fuse_kernel:*' -e 'fuse_daemon:*' -- "$samples/workload" mixed --processes 2 /run/mount \
  >workload.json
kill -INT $graph
wait $graph || true # what it says after a signal differs between versions; trace.dat is checked

"$samples/with-symbols/samplefs" --talk /run/talk internal affairs >counters
echo >$tracing/dynamic_events
fusermount3 -u /run/mount
