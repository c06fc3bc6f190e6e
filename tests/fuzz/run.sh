#!/usr/bin/env bash
# Fuzzes all targets, or the named ones: `run.sh MINUTES [TARGET ...]`. They are built like cargo-fuzz's, with
# AddressSanitizer and libFuzzer's coverage, by the installed compiler. The builds, the corpus and the number of runs of
# each target stay in FUSETOOLS_FUZZ, by default in the user's cache. See README.md.
set -eu
cd "$(dirname "$0")"
minutes=${1:?run.sh MINUTES [TARGET ...]}
shift
cache=${FUSETOOLS_FUZZ:-${XDG_CACHE_HOME:-$HOME/.cache}/fusetools-fuzz}
mkdir -p "$cache/artifacts"

export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$cache/target
flags="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
target=$(rustc -vV | sed -n 's/^host: //p')
if compgen -G "$(rustc --print sysroot)/lib/rustlib/$target/lib/*asan*" >/dev/null; then
  flags+=" -Zsanitizer=address"
else
  echo "run.sh: this Rust has no AddressSanitizer (rustup's has): fuzzing without it"
fi
# Findings' stacks need line numbers; the profile is the workspace's.
export CARGO_PROFILE_RELEASE_DEBUG=1
RUSTFLAGS=$flags cargo build --quiet --release --target "$target"
built=$cache/target/$target/release

# Share of time (large targets get more; small ones are covered soon), and the longest input.
weights=(
  reader:3:16384 events:4:4096 recordings:3:256 merge:4:4096 stream:3:4096 tracedat:3:16384 large:2:16
  elf:3:65536 unwind:4:2048 gopclntab:2:1024 texts:2:1024 names:2:256 folded:2:1024
)
chosen=()
sum=0
for each in "${weights[@]}"; do
  [ $# -eq 0 ] || [[ " $* " == *" ${each%%:*} "* ]] || continue
  chosen+=("$each")
  share=${each#*:}
  sum=$((sum + ${share%:*}))
done
[ $sum -gt 0 ] || { echo "run.sh: no such target: $*" >&2; exit 2; }

# Recordings of other kernels, if available; ours always is.
shopt -s nullglob
recordings=(../../samples/recordings/demo.data "${FUSETOOLS_KERNELS:-../../../shared/data/kernels}"/*/recording/{perf.data,trace.dat}.zst)
"$built/seeds" "$cache/seeds" "$cache/recordings" "${recordings[@]}" >/dev/null

export FUSETOOLS_RECORDINGS=$cache/recordings FUSETOOLS_FUZZ_MEMORY=/dev/shm/fusetools-fuzz-$$
trap 'rm -rf "$FUSETOOLS_FUZZ_MEMORY"' EXIT
# Do not note where memory came from: that takes half of the time.
export ASAN_OPTIONS=detect_leaks=0:malloc_context_size=0:quarantine_size_mb=16
failed=0
total=0
for each in "${chosen[@]}"; do
  IFS=: read -r name share longest <<<"$each"
  seconds=$(awk "BEGIN { printf \"%d\", 60 * $minutes * $share / $sum + 1 }")
  log=$cache/artifacts/$name.log
  status=0
  mkdir -p "$cache/corpus/$name"
  "$built/$name" -artifact_prefix="$cache/artifacts/$name-" -max_len="$longest" -timeout=10 -rss_limit_mb=1024 \
    -max_total_time="$seconds" -print_final_stats=1 "$cache/corpus/$name" "$cache/seeds/$name" >"$log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
  total=$((total + ${runs:-0}))
  echo "$name ${runs:-0}" >>"$cache/executions"
  if [ $status = 0 ]; then
    echo "$name: ${runs:-0} executions in $seconds s, at most ${peak:-?} MB, no crash"
  else
    failed=1
    echo "$name: FAILED after ${runs:-?} executions ($log):"
    grep -m 3 -E "panicked at|ERROR|SUMMARY|Test unit written" -A 1 "$log" || tail -n 5 "$log"
  fi
done
echo "$total executions; of all runs together ($cache/executions):"
awk '{ sum[$1] += $2; all += $2 } END { for (name in sum) print "  " name, sum[name]; print "  in all", all }' "$cache/executions"
exit $failed
