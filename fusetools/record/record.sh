# The rest is the same in every script. The part above sets: made_for, kernel, arch, mounts, perf,
# trace_cmd, and the functions check_host, make_probes, graph_events, perf_events, task_events and plan.

set -u
umask 077

out=fusetools.tar
run=/run/fusetools       # fusetools keeps its own notes there
lock=$run/script         # a link to PID.START of the script that records
state=$run/script.made   # what it made: "probe GROUP/NAME", "ftrace SETTING BEFORE", "work DIRECTORY"
asked=0                  # signals that asked for the end
work=
holds_lock=
perf_pids=
graph_pid=
# The settings of ftrace that function_graph changes, in the order in which they are restored, and
# those that select functions.
settings='current_tracer trace_clock buffer_size_kb tracing_on'
filters='set_ftrace_filter set_ftrace_notrace set_graph_function set_graph_notrace set_ftrace_pid'

say() { printf 'record.sh: %s\n' "$*" >&2; }

# fail WHAT WHY COMMAND: print what failed, why, and the command that fixes it, and end.
fail() {
  say "$1"
  [ -z "$2" ] || printf '  why: %s\n' "$2" >&2
  [ -z "$3" ] || printf '  fix: %s\n' "$3" >&2
  exit 1
}

usage() {
  cat >&2 <<'END'
Usage: sh record.sh [-o FILE.tar] [--] [WORKLOAD [ARGUMENT]...]

Record WORKLOAD, or without one the daemons until Ctrl-C, into FILE.tar (default: fusetools.tar).
Then, where fusetools is: fusetools open FILE.tar
END
  exit "$1"
}

# The start time of process $1, in clock ticks since the boot; nothing if there is no such process.
start_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# Print the value of a setting of ftrace, as it is to be written again.
setting() {
  case $1 in
    trace_clock) sed 's/.*\[\(.*\)\].*/\1/' "$tracefs/$1" ;;
    buffer_size_kb) sed -n -e 's/.*expanded: //' -e 's/^\([0-9][0-9]*\))*$/\1/p' "$tracefs/$1" ;;
    *) cat "$tracefs/$1" ;;
  esac
}

# Print the first entry of a filter of ftrace; nothing if there is none.
entry() { sed -e '/^#/d' -e '/^no pid/d' -e '/^$/d' "$tracefs/$1" 2>/dev/null | head -n 1; }

# restore NAME VALUE: restore a setting of ftrace. function_graph's filters are emptied with it.
restore() {
  [ -z "$2" ] || [ "$(setting "$1")" = "$2" ] || printf '%s\n' "$2" >"$tracefs/$1"
  [ "$1" = current_tracer ] || return 0
  for filter in $filters; do
    [ -z "$(entry "$filter")" ] || : >"$tracefs/$filter"
  done
}

# Remove the events and directories that $state lists, and restore settings. Fail if somebody still
# uses an event.
remove_made() {
  [ -e "$state" ] || return 0
  tries=0
  while :; do
    left=
    while read -r kind what; do
      case $kind in
        probe)
          if [ -d "$tracefs/events/$what" ]; then
            file=uprobe_events
            case $what in fuse_kernel/*) file=kprobe_events ;; esac
            printf -- '-:%s\n' "$what" >>"$tracefs/$file" 2>/dev/null || left=$what
          fi
          ;;
        ftrace) restore "${what%% *}" "${what#* }" ;;
        work) rm -rf -- "$what" ;;
      esac
    done <"$state"
    [ -n "$left" ] || break
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || return 1
    sleep 1
  done
  rm -f -- "$state"
}

# Print the processes that have a file open whose name matches $1, a regular expression of sed.
# shellcheck disable=SC2012  # find would print no links' targets
have_open() {
  ls -l /proc/[0-9]*/fd 2>/dev/null |
    sed -n -e '/^\/proc\/[0-9]*\/fd:$/{s,^/proc/,,;s,/fd:$,,;h;}' -e "\, -> $1\$,{g;p;}" |
    sort -nu
}

# Print the process that holds the lock of fusetools' own recordings; nothing if none does.
recording() {
  number=$(stat -c '%d' "$run/lock" 2>/dev/null) || return 0
  file=$(printf '%02x:%02x:%s' $((number >> 8 & 4095)) $((number & 255 | number >> 12 & 1048320)) \
    "$(stat -c '%i' "$run/lock")")
  sed -n "s/^[0-9]*: FLOCK  *[A-Z]*  *[A-Z]* *\([0-9]*\) $file .*/\1/p" /proc/locks | head -n 1
}

# Become the only one that records. Remove what a killed script left.
take_lock() {
  [ -d "$run" ] || mkdir -m 700 "$run" || fail 'cannot record' "$run cannot be made" 'ls -ld /run'
  own=$$.$(start_of $$)
  if ! ln -s "$own" "$lock" 2>/dev/null; then
    other=$(readlink "$lock") || fail 'cannot record' "$lock cannot be made" "ls -ld $run"
    if [ -n "$other" ] && [ "$(start_of "${other%.*}")" = "${other#*.}" ]; then
      fail 'cannot record' "another record.sh runs (pid ${other%.*})" "kill ${other%.*}"
    fi
    say 'removing what a killed recording left'
    remove_made || fail 'cannot record' "an event of a killed recording is in use: $left" \
      "kill the process that uses it"
    rm -f -- "$lock"
    ln -s "$own" "$lock" || fail 'cannot record' "another record.sh begins" "try again"
  fi
  holds_lock=1
  # Whoever takes that lock looks at the link then.
  other=$(recording)
  [ -z "$other" ] || fail 'cannot record' "a recording of fusetools runs (pid $other)" \
    "wait for it, or stop it: kill -INT $other"
}

# On any end: stop what runs, and remove what was made.
cleanup() {
  trap '' INT TERM HUP QUIT PIPE ALRM
  exec 8>&- 9>&-
  for pid in $perf_pids; do kill -INT "$pid" 2>/dev/null; done
  wait_for_recorders
  for pid in ${timer:-} ${watcher:-}; do kill "$pid" 2>/dev/null; done
  [ -n "$holds_lock" ] || return 0
  remove_made || say "an event is in use, and stays: $left"
  rm -f -- "$lock"
}

# Wait until perf and trace-cmd have ended, and so have closed their events.
wait_for_recorders() {
  for pid in $perf_pids $graph_pid; do
    wait_until_gone "$pid" 180 || kill -KILL "$pid" 2>/dev/null
  done
  perf_pids=
  graph_pid=
}

# Succeed if process $1 runs; one that has ended and is not waited for does not.
runs() {
  case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in '' | Z* | X*) return 1 ;; esac
}

# wait_until_gone PID SECONDS
wait_until_gone() {
  tenths=0
  while runs "$1"; do
    [ "$tenths" -lt "$(($2 * 10))" ] || return 1
    sleep 0.1
    tenths=$((tenths + 1))
  done
}

interrupted() { [ "$asked" = 0 ] || fail 'interrupted before the recording began' '' ''; }

# find_mount NUMBER PATH COMM PROGRAM PID: set connection_NUMBER and pid_NUMBER. PATH is written as
# in mountinfo; PID: the daemon, "" if it is to be found.
find_mount() {
  device=
  while read -r _ _ number _ path rest; do
    case " $rest" in *" - fuse"*) [ "$path" != "$2" ] || device=$number ;; esac
  done </proc/self/mountinfo
  [ -n "$device" ] || fail "cannot record $2" 'no FUSE file system is mounted there' "ls $2"
  connection=$(((${device%:*} << 20) + ${device#*:}))
  daemon=$5
  if [ -z "$daemon" ]; then
    named=
    several=
    for pid in $fuse_pids; do
      numbers=$(sed -n 's/^fuse_connection:[[:space:]]*//p' "/proc/$pid/fdinfo/"* 2>/dev/null)
      if [ -n "$numbers" ]; then
        for number in $numbers; do
          # The parent, where a worker has the connection, too.
          [ "$number" != "$connection" ] || [ -n "$daemon" ] || daemon=$pid
        done
      elif [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$3" ]; then
        several=${named:+$several $named}
        named=$pid
        ! tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -Fqx -- "$2" || daemon=$pid
      fi
    done
    [ -n "$daemon" ] || [ -n "$several" ] || daemon=$named
    [ -n "$daemon" ] || fail "the daemon of $2 is not known" "no process $3, or several, serve it" \
      'make the script again: fusetools script --pid PID'
  fi
  [ -d "/proc/$daemon" ] || fail "the daemon of $2, process $daemon, has ended" '' \
    'make the script again: fusetools script'
  eval "connection_$1=\$connection pid_$1=\$daemon"
  daemons="$daemons $daemon"
  printf 'mount.%s %s %s\n' "$1" "$connection" "$daemon" >>"$data/run"
}

# need_event SYSTEM:NAME
need_event() {
  [ -d "$tracefs/events/${1%%:*}/${1#*:}" ] ||
    fail "this script was made for another kernel" "there is no event $1" "$made_by"
}

# need_function NAME
need_function() {
  grep -q "^[0-9a-f]* [tTwW] $1\([[:space:]]\|\$\)" /proc/kallsyms ||
    fail "this script was made for another kernel" "it has no function $1" "$made_by"
}

# need_file SHA256 PATH PID: the daemon has the very file mapped that the probes are for.
need_file() {
  sum=$(sha256sum <"$2") || fail "cannot probe $2" 'it cannot be read' "$made_by"
  [ "${sum%% *}" = "$1" ] || fail "this script was made for another $2" 'its contents differ' "$made_by"
  inode=$(stat -Lc %i "$2")
  grep -q " $inode  *[^ ]" "/proc/$3/maps" ||
    fail "process $3 runs another copy of $2" 'it was replaced since' 'mount it again'
}

# probe FILE GROUP/NAME DEFINITION
probe() {
  [ ! -d "$tracefs/events/$2" ] || fail 'cannot record' "the event $2 is another recording's" \
    'fusetools clean (once no recording runs), or wait for its end'
  printf 'probe %s\n' "$2" >>"$state"
  printf '%s\n' "$3" >>"$tracefs/$1" 2>/dev/null || fail 'the kernel refuses a probe' "$3" "$made_by"
}

# ours FIELD: a filter for the workload's threads: they have greater numbers than its first one.
# Numbers are given anew from 300 on after pid_max.
ours() {
  if [ "$below" -gt 300 ]; then
    printf '(%s >= %s || (%s >= 300 && %s < %s))' "$1" "$first" "$1" "$1" "$below"
  else
    printf '%s >= %s' "$1" "$first"
  fi
}

# threads FIELD: a filter for the daemons' threads; for none of them if they are too many.
threads() {
  count=0
  text=
  for thread in $daemon_threads; do
    count=$((count + 1))
    text="${text:+$text || }$1 == $thread"
  done
  if [ "$count" = 0 ] || [ "$count" -gt 64 ]; then text="$1 == -1"; fi
  printf '(%s)' "$text"
}

# start NAME COMMAND [ARGUMENT]...: start a recorder, and wait until it records: then it starts its own
# command, which ends once this script lets go of it, however this script ends. So it needs no perf with
# --control. The recorder's process is in $started.
start() {
  name=$1
  shift
  (
    trap '' INT
    exec 8>&- 9>&-
    cd "$data" || exit 1
    # In a session of its own, so that no Ctrl-C reaches it.
    # shellcheck disable=SC2016
    $setsid "$@" \
      sh -c 'trap "" INT; echo "$PPID" >"$1/up"; read -r _ <"$1/hold"' sh .. 7>&- >>"$name.log" 2>&1
    echo "ended" >&7
  ) &
  started=
  while [ -z "$started" ]; do read -r started <&7; done # a signal ends read
  if [ "$started" = ended ]; then
    # Not of plugins that cannot be loaded
    why=$(grep -i -e fail -e error -e invalid -e denied "$data/$name.log" | head -n 1)
    [ -n "$why" ] || why=$(grep -v -e '^$' -e '^\[ perf' "$data/$name.log" | head -n 1)
    fail "$name cannot record" "${why:-it ended}" "$1 record -e sched:sched_switch true   (says more)"
  fi
}

# start_perf ARGUMENT...: start `perf record`.
start_perf() {
  start perf "$perf" record "$@" --
  perf_pids="$perf_pids $started"
}

# start_graph ARGUMENT...: start `trace-cmd record` of function_graph, paused until perf records.
start_graph() {
  command -v "$trace_cmd" >/dev/null || trace_cmd=$(command -v trace-cmd) ||
    fail 'cannot record function_graph' 'trace-cmd is not installed' "$without_graph"
  tracer=$(setting current_tracer)
  [ "$tracer" = nop ] || fail 'ftrace is in use' "the tracer $tracer is on (current_tracer)" "$without_graph"
  for filter in $filters set_event; do
    selected=$(entry "$filter")
    [ -z "$selected" ] || fail 'ftrace is in use' "$selected in $filter" "$without_graph"
  done
  # function_graph would cut the stacks that another perf records.
  for pid in $(have_open '.*/tracing/per_cpu/.*/trace_pipe_raw') $(have_open 'anon_inode:\[perf_event\]'); do
    case $(cat "/proc/$pid/comm" 2>/dev/null) in perf | trace-cmd)
      fail 'ftrace is in use' "perf or trace-cmd records (pid $pid)" "$without_graph" ;;
    esac
  done
  for name in $settings; do printf 'ftrace %s %s\n' "$name" "$(setting "$name")" >>"$state"; done
  start trace-cmd "$trace_cmd" record "$@"
  graph_pid=$started
  echo 0 >"$tracefs/tracing_on"
  if [ "$(setting current_tracer)" != function_graph ] || [ -z "$(entry set_ftrace_filter)" ]; then
    fail 'trace-cmd cannot record function_graph' "$(head -n 1 "$data/trace-cmd.log")" "$without_graph"
  fi
}

# End the recording once trace-cmd has written $1 KiB.
watch_graph() {
  trap 'kill "$sleeper" 2>/dev/null; exit' TERM
  exec 8>&- 9>&-
  while :; do
    sleep 1 &
    sleeper=$!
    wait "$sleeper"
    written=0
    for file in "$data"/trace.dat*; do
      size=$(stat -c %s "$file" 2>/dev/null) && written=$((written + size / 1024))
    done
    [ "$written" -lt "$1" ] || break
  done
  echo 'ended early' >>"$data/run"
  kill -ALRM $$
}

# Print how many events ftrace's buffers overwrote or dropped.
lost() {
  cat "$tracefs"/per_cpu/cpu*/stats |
    sed -n -e 's/^overrun: //p' -e 's/^commit overrun: //p' -e 's/^dropped events: //p' |
    {
      sum=0
      while read -r count; do sum=$((sum + count)); done
      echo "$sum"
    }
}

# Note what the daemons have mapped, their threads and the mounts' limits.
look() {
  cat /proc/self/mountinfo >"$data/mountinfo"
  number=0
  for pid in $daemons; do
    number=$((number + 1))
    cat "/proc/$pid/maps" >"$data/maps.$number"
    ls "/proc/$pid/task" >"$data/threads.$number"
    eval "connection=\$connection_$number"
    for name in max_background congestion_threshold; do
      value=$(cat "/sys/fs/fuse/connections/$connection/$name" 2>/dev/null) &&
        printf 'limit.%s %s %s\n' "$number" "$name" "$value" >>"$data/run"
    done
    value=$(cat "/sys/class/bdi/$((connection >> 20)):$((connection & 1048575))/read_ahead_kb" 2>/dev/null) &&
      printf 'limit.%s read_ahead_kb %s\n' "$number" "$value" >>"$data/run"
  done
}

# Copy the programs and libraries of the daemons, whose symbols name the functions in stacks.
copy_programs() {
  command -v timeout >/dev/null || return 0
  number=0
  for pid in $daemons; do
    number=$((number + 1))
    file=0
    sed -n 's/^[0-9a-f-]* ..x. [0-9a-f]* [0-9a-f:]* [0-9]* *\(\/.*\)/\1/p' "$data/maps.$number" |
      sort -u | while read -r path; do
      file=$((file + 1))
      size=$(timeout 5 stat -Lc %s "/proc/$pid/root$path" 2>/dev/null) || continue
      if [ "$size" -gt 134217728 ] || [ "$file" -gt 200 ]; then continue; fi
      timeout 10 cp -- "/proc/$pid/root$path" "$data/elf.$number.$file" 2>/dev/null &&
        printf '%s %s %s\n' "$number" "$file" "$path" >>"$data/elves"
    done
  done
}

forks() { sed -n 's/^processes //p' /proc/stat; }
now() { date +%s; }

while [ $# -gt 0 ]; do
  case $1 in
    -o)
      [ $# -gt 1 ] || usage 2
      out=$2
      shift 2
      ;;
    --)
      shift
      break
      ;;
    -h | --help) usage 0 ;;
    -*) usage 2 ;;
    *) break ;;
  esac
done

[ "$(id -u)" = 0 ] || fail 'cannot record' 'not root' "sudo sh $0 -- WORKLOAD"
tracefs=/sys/kernel/tracing
[ -d "$tracefs/events" ] || tracefs=/sys/kernel/debug/tracing
[ -d "$tracefs/events" ] || fail 'cannot record' 'tracefs is not mounted' \
  'mount -t tracefs nodev /sys/kernel/tracing'
if [ "$(uname -r)" != "$kernel" ] || [ "$(uname -m)" != "$arch" ]; then
  fail "this script was made for Linux $kernel $arch" "this is Linux $(uname -r) $(uname -m)" "$made_by"
fi
command -v "$perf" >/dev/null || perf=$(command -v perf) ||
  fail 'cannot record' 'perf is not installed' 'install the package of perf, e.g. linux-perf'
[ $# = 0 ] || command -v "$1" >/dev/null || fail "cannot run $1" 'there is no such command' ''
setsid=$(command -v setsid)
case $out in */*) folder=${out%/*}/ ;; *) folder=. ;; esac
tar_name=${out##*/}
here=$(pwd)
cd "$folder" || fail "cannot write $out" "there is no directory $folder" "mkdir -p $folder"
# Else another user could have root write elsewhere.
case $(stat -c '%u %a' .) in
  '0 '*[2367]? | '0 '*[2367]) why='others may write there' ;;
  '0 '*) why= ;;
  *) why='it is not a directory of root' ;;
esac
[ -z "$why" ] || fail "cannot write in $folder" "$why" '-o /root/FILE.tar'
if [ -z "$tar_name" ] || [ -d "$tar_name" ]; then fail "cannot write $out" 'it is a directory' '-o FILE.tar'; fi

trap 'asked=$((asked + 1))' INT TERM HUP QUIT PIPE
trap 'timed_out=1' ALRM
trap cleanup EXIT
timed_out=
take_lock
work=$(mktemp -d .fusetools.XXXXXXXX) || fail "cannot write in $folder" '' ''
printf 'work %s/%s\n' "$(pwd)" "$work" >"$state"
data=$work/data
mkdir "$data"
plan >"$data/plan.json"
perf_version=$("$perf" --version) || perf_version=
{
  printf 'hostname %s\n' "$(uname -n)"
  printf 'perf %s\n' "${perf_version##* }"
  printf 'cpus %s\n' "$(grep -c '^processor' /proc/cpuinfo)"
} >"$data/run"

fuse_pids=$(have_open /dev/fuse)
daemons=
find_mounts
check_host
interrupted
make_probes
interrupted

mkfifo "$work/up" "$work/hold" "$work/go"
exec 3<&0 7<>"$work/up" 8<>"$work/hold" 9<>"$work/go"
workload=
if [ $# -gt 0 ]; then
  # Wait for the release, or leave if this script is killed.
  (
    trap - INT TERM HUP QUIT PIPE ALRM EXIT
    exec 7>&- 8>&- 9>&-
    read -r _ <"$work/go" || exit 127
    cd "$here" || exit 126
    exec "$@" 3<&-
  ) <&3 &
  workload=$!
fi
daemon_threads=
for pid in $daemons; do daemon_threads="$daemon_threads $(ls "/proc/$pid/task")"; done
pid_max=$(cat /proc/sys/kernel/pid_max)
first=${workload:-$((pid_max + 1))}
below=0
if [ -n "$workload" ] && [ $((pid_max - first)) -lt 262144 ]; then below=$((first - pid_max / 4)); fi
look

# Each CPU's buffer and the size at which perf ends, in KiB.
cpus=$(grep -c '^processor' /proc/cpuinfo)
buffer=32768
while [ "$buffer" -gt 64 ] && [ $((buffer * cpus)) -gt 524288 ]; do buffer=$((buffer / 2)); done
free=$(df -Pk "$work" | sed -n '2s/.* \([0-9][0-9]*\)  *[0-9]*% .*/\1/p')
limit=$((${free:-0} * 9 / 20 - buffer * cpus))
[ "$limit" -lt "$max_size" ] || limit=$max_size
[ "$limit" -ge 1024 ] || fail 'cannot record' "the disk of $folder is full" '-o FILE.tar on another disk'

# trace-cmd's buffers are written at the end, and it merges its parts, which takes several times their size.
graph_buffer=16384
while [ "$graph_buffer" -gt 256 ] && { [ $((graph_buffer * cpus)) -gt 262144 ] ||
  [ $((graph_buffer * cpus)) -gt $((${free:-0} / 64)) ]; }; do graph_buffer=$((graph_buffer / 2)); done
graph_limit=$((${free:-0} / 16 - graph_buffer * cpus))
[ "$graph_limit" -lt "$max_size" ] || graph_limit=$max_size

forks_before=$(forks)
graph_events
interrupted
perf_events
task_events
interrupted
cat "$tracefs/uprobe_profile" >"$data/uprobes.0" 2>/dev/null
[ $# = 0 ] || printf '%s\0' "$@" >"$data/command"
say "recording $mounts"
{
  printf 'started %s\n' "$(now)"
  printf 'workload %s\n' "${workload:-0}"
} >>"$data/run"
began=$(cut -d ' ' -f 1 /proc/uptime)
if [ -n "$graph_pid" ]; then
  echo 1 >"$tracefs/tracing_on"
  watch_graph "$graph_limit" &
  watcher=$!
fi
if [ -n "$duration" ]; then
  (
    trap 'kill "$sleeper" 2>/dev/null; exit' TERM
    exec 8>&- 9>&-
    sleep "$duration" &
    sleeper=$!
    wait "$sleeper" && kill -ALRM $$
  ) &
  timer=$!
fi
[ -z "$workload" ] || echo go >&9
status=
while :; do
  if [ -n "$workload" ]; then
    wait "$workload"
    status=$?
  else
    sleep 1 &
    wait $!
  fi
  if [ "$asked" -gt 0 ] || [ -n "$timed_out" ] || [ -n "$workload" ]; then break; fi
  alive=
  for pid in $perf_pids; do ! runs "$pid" || alive=1; done
  [ -n "$alive" ] || break
done
if [ -n "$workload" ] && [ "$asked$timed_out" != 0 ]; then
  # A signal ends the workload, too; the end of the time only the recording.
  [ "$asked" = 0 ] || kill -TERM "$workload" 2>/dev/null
  if [ "$asked" -gt 0 ] && ! wait_until_gone "$workload" 5; then
    [ "$asked" -lt 2 ] || kill -KILL "$workload" 2>/dev/null
    wait_until_gone "$workload" 2
  fi
  if runs "$workload"; then
    say "the workload (pid $workload) goes on"
    status=
  else
    wait "$workload"
    status=$?
  fi
fi
ended=$(cut -d ' ' -f 1 /proc/uptime)
# The daemons answer what the workload left behind.
[ -z "$workload" ] || sleep 1

if [ -n "$graph_pid" ]; then
  kill "$watcher" 2>/dev/null
  watcher=
  echo 0 >"$tracefs/tracing_on"
fi
cat "$tracefs/uprobe_profile" >"$data/uprobes.1" 2>/dev/null
[ -z "$graph_pid" ] || printf 'graphlost %s\n' "$(lost)" >>"$data/run"
for pid in $perf_pids; do
  runs "$pid" || printf 'ended early\n' >>"$data/run"
  kill -INT "$pid" 2>/dev/null
done
exec 8>&-
wait_for_recorders
rm -f -- "$data"/trace.dat.* # parts that it did not merge
cat "$tracefs/kprobe_profile" >"$data/kprobes.1" 2>/dev/null
[ -s "$data/perf.data" ] || fail 'nothing was recorded' "$(head -n 1 "$data/perf.log")" ''
{
  printf 'uptime %s %s\n' "$began" "$ended"
  printf 'status %s\n' "${status:-none}"
  printf 'forks %s %s\n' "$forks_before" "$(forks)"
  [ "$asked" = 0 ] || printf 'interrupted 1\n'
} >>"$data/run"
for pid in $daemons; do [ -d "/proc/$pid" ] || printf 'gone %s\n' "$pid" >>"$data/run"; done
cat /proc/kallsyms >"$data/kallsyms"
copy_programs
tar -cf "$work/tar" -C "$data" . || fail "cannot write $out" 'tar failed' "df -h $folder"
mv -f -- "$work/tar" "$tar_name" || fail "cannot write $out" 'it cannot be renamed' '-o FILE.tar'
say "$out: then, where fusetools is: fusetools open $out"
[ -z "$workload" ] || exit "${status:-124}"
