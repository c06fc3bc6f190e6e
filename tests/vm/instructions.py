"""Cost of recording in instructions of kernel and programs: `make bench-instructions`.

A guest whose clocks count instructions (tests/vm/vm.py, Kernel.counting) runs the loops of
instructions.c without a recording, then while fusetools or bpftrace records. On any machine,
however busy, two runs differ by less than 1 %.

A loop's figure is the CPU time of the threads that run it, and for a request the daemon's. It
contains interrupts and the threads' part of each switch. It does not contain the processes that
drain the buffers. Instructions are not time: one that misses all caches counts as one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import debs
import vm
from samplefs import SAMPLES, mount

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FILE = "/run/mount/dir-00/file-000"
REQUESTS = 3  # of a stat of it: LOOKUP, LOOKUP, GETATTR
STATS = 1000
# Loops of processes that are not recorded -> rounds.
OTHERS = {"spin": 1_000_000, "call": 20_000, "fstat": 20_000, "switch": 4000}
# Those that run in a process that starts after the workload, too.
LATER = ("call", "switch")


@dataclass(frozen=True)
class Way:
    """A way to record: shell code that runs the command appended to it while it records.

    ``functions``: shell functions that it uses.
    """

    name: str
    record: str
    functions: str = ""


@dataclass(frozen=True)
class Figures:
    """Instructions for a request and for a round of each other loop.

    ``others``, ``later``: of processes that are not recorded, which start before and after the
    workload. ``events``: events of a request that ftrace recorded.
    """

    request: float
    events: float
    others: dict[str, float]
    later: dict[str, float]


def by_fusetools(name: str, *options: str) -> Way:
    # Not the command: its server in the guest would first import all that any command needs.
    command = [sys.executable, "-m", "fusetools", "record", "--mount", "/run/mount", *options, "--"]
    return Way(name, shlex.join(command))


DEFAULT = by_fusetools("default")
WAYS = (
    by_fusetools("latency", "--detail", "latency"),
    by_fusetools("stages", "--detail", "stages"),
    DEFAULT,
    by_fusetools("stages, kprobes", "--detail", "stages", "--backend", "kprobe"),
    by_fusetools("default, kprobes", "--backend", "kprobe"),
)


def by_bpftrace(kernel: vm.Kernel) -> Way:
    """Return bpftrace's histograms of requests and callbacks. Raise debs.Unavailable without it."""
    tree = kernel.folder / "bpftrace"
    program = tree / "run"
    if not program.exists():
        debs.Suite(kernel.suite, kernel.folder).unpack(tree, "bpftrace", dependencies=True)
        program.write_text(vm.wrapper(tree, tree / "usr/bin/bpftrace"))
        program.chmod(0o755)
    # Before Linux 6.10 there are no such tracepoints.
    request = ("tracepoint:fuse:fuse_request_send", "tracepoint:fuse:fuse_request_end")
    key = "args->unique"
    if kernel.version < (6, 10):
        request, key = ("kprobe:queue_request_and_unlock", "kprobe:fuse_request_end"), ""
    of = (key or "arg1", key or "arg0")
    probes = [f"{request[0]} {{ @begin[{of[0]}] = nsecs; }}"]
    probes += [
        f"{request[1]} /@begin[{of[1]}]/"
        f" {{ @took = hist(nsecs - @begin[{of[1]}]); delete(@begin[{of[1]}]); }}"
    ]
    library, addresses = callbacks()
    for address in addresses:
        place = f"{library}:0x{address:x}"
        probes += [f"uprobe:{place} {{ @enter[tid] = nsecs; }}"]
        probes += [f"uretprobe:{place} {{ @call = hist(nsecs - @enter[tid]); }}"]
    text = " ".join(['BEGIN { printf("armed\\n"); }', *probes])
    return Way(
        "bpftrace",
        "histograms",
        f"""histograms() {{
  {program} -B line -e {shlex.quote(text)} > traced 2>&1 &
  until grep -q armed traced; do
    kill -0 $! || {{ cat traced; return 1; }}
    sleep 0.1
  done
  "$@"
}}""",
    )


def callbacks() -> tuple[Path, list[int]]:
    """Return the sample's library, and the offsets of the callbacks of a stat in it."""
    (library,) = (SAMPLES / "with-symbols").glob("libcvmfs_fuse3.so.*")
    text = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(\w+) t _ZN5cvmfsL\d+cvmfs_(?:lookup|getattr)E", text)
    return library, [int(address, 16) for address in found]


def loops(record: str, stats: int) -> str:
    """Return shell code that prints the figures of each loop while `record` records."""
    started = "\n".join(
        f"./loops {loop} {count} < go-{loop} > {loop} &\npid_{loop}=$!"
        for loop, count in OTHERS.items()
    )
    others = "\n".join(f"echo > go-{loop}\nwait $pid_{loop}\ncat {loop}" for loop in OTHERS)
    later = "\n".join(f'echo "later-$(./loops {loop} {OTHERS[loop]})"' for loop in LATER)
    return f"""{started}
{{ {record} sh workload $daemon {stats} || true; echo ended > now; }} > said 2>&1 &
ready
{others}
echo > go
ready
cat stat
{later}
"""


def script(way: Way, stats: int) -> str:
    """Return shell code that prints the loops' figures twice: before and while `way` records.

    The guest ends what records: to finish the recording would take a minute.
    """
    return f"""set -e
{mount()}
cp loops /run
cd /run
daemon=$(grep -l samplefs /proc/[0-9]*/comm | cut -d / -f 3 | sort -n | tail -1)
mkfifo now go {" ".join(f"go-{loop}" for loop in OTHERS)}
cat > workload << 'END'
events() {{
  cd /sys/kernel/tracing
  cat per_cpu/cpu0/stats instances/*/per_cpu/cpu0/stats 2> /dev/null |
    awk '/^(entries|read events|overrun):/ {{ n += $NF }} END {{ print n + 0 }}'
  cd /run
}}
echo ready > now
read -r _ < go
before=$(events)
./loops stat $2 {FILE} $1 > stat
after=$(events)
echo events $(((after - before) / ($2 + $2 / 4))) >> stat
echo ready > now
read -r _ < go
END
ready() {{
  read -r word < now
  [ "$word" = ready ] || {{ cat said >&2; exit 1; }}
}}
{loops("", stats)}
echo > go
read -r word < now
{way.functions}
{loops(way.record, stats)}
"""


def measure(
    kernel: vm.Kernel, folder: Path, way: Way, stats: int = STATS
) -> tuple[Figures, Figures]:
    """Return the figures without a recording, and while `way` records, from a guest of its own."""
    folder.mkdir(exist_ok=True)
    compiler = ["cc", "-O2", "-Wall", "-Werror", "-static", "-pthread", "-o", str(folder / "loops")]
    subprocess.run([*compiler, str(HERE / "instructions.c")], check=True)
    counting = dataclasses.replace(kernel, counting=True)
    command = f"export PATH={kernel.tools()}:$PATH\n{script(way, stats)}"
    lines = vm.guest(counting, folder)(command).stdout.splitlines()
    assert len(lines) % 2 == 0, lines
    before, during = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    return _figures(before), _figures(during)


def _figures(lines: list[str]) -> Figures:
    rows = {name: [float(one) for one in rest] for name, *rest in map(str.split, lines)}
    return Figures(
        request=sum(rows["stat"]) / REQUESTS,
        events=rows["events"][0] / REQUESTS,
        others={loop: rows[loop][0] for loop in OTHERS},
        later={loop: rows[f"later-{loop}"][0] for loop in LATER},
    )


def table(rows: Sequence[tuple[str, Figures]], bare: Figures) -> str:
    """Return the figures as aligned text: what each way adds to those of `bare`."""
    others = [loop for loop in OTHERS if loop != "spin"]
    heads = ["", "request", "more", "events", "an event", *others]
    heads += [f"later {loop}" for loop in LATER]
    lines = [heads, ["nothing", *_cells(bare, bare, others)]]
    lines += [[name, *_cells(of, bare, others)] for name, of in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in lines
    )


def _cells(of: Figures, bare: Figures, others: Sequence[str]) -> list[str]:
    more = of.request - bare.request
    return [
        f"{of.request:,.0f}",
        f"{of.request / bare.request:.2f}" if of is not bare else "",
        f"{of.events:.1f}" if of.events else "",
        f"{more / of.events:,.0f}" if of.events else "",
        *(f"{of.others[loop]:,.0f}" for loop in others),
        *(f"{of.later[loop]:,.0f}" for loop in LATER),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", default="bookworm,trixie", help="suites to take kernels of")
    parser.add_argument("--json", type=Path, default=ROOT / "target/instructions.json")
    options = parser.parse_args()
    found = []
    for suite in options.kernels.split(","):
        kernel = vm.Kernel.fetch(suite)
        ways = [way for way in WAYS if kernel.version < (6, 10) or "kprobes" not in way.name]
        rows: list[tuple[str, Figures]] = []
        with tempfile.TemporaryDirectory() as name:
            for way in (*ways, by_bpftrace(kernel)):
                bare, during = measure(kernel, Path(name) / f"way-{len(rows)}", way)
                rows.append((way.name, during))
                found.append(
                    {
                        "kernel": kernel.release,
                        "way": way.name,
                        "nothing": dataclasses.asdict(bare),
                        "recording": dataclasses.asdict(during),
                    }
                )
                print(f"  {kernel.release}: {way.name} measured", file=sys.stderr, flush=True)
        vm.close()
        print(f"Linux {kernel.release}, instructions:\n{table(rows, bare)}\n", flush=True)
    options.json.parent.mkdir(exist_ok=True)
    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
