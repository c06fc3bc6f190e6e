"""Hostile input of users, daemons and files never causes a traceback."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fixtures import Invoke

from fusetools import _core, cli, session
from fusetools.answers.counts_file import read_counts
from fusetools.csvfile import written
from fusetools.errors import Error
from fusetools.host import files, words
from fusetools.host.facts import Library
from fusetools.host.files import Files, bounded, open_regular
from fusetools.host.messages import framed
from fusetools.host.mounts import parse_mountinfo
from fusetools.host.processes import code, comm, family, started
from fusetools.host.rights import drop_privileges
from fusetools.plan.events import Probe
from fusetools.record import merger, state, symbols
from fusetools.record.state import Removed
from fusetools.record.tracefs import Tracefs
from fusetools.record.workload import Workload
from fusetools.render.csv.count import render
from fusetools.results.count import Count, Counts
from fusetools.results.facts import Facts

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples" / "recordings" / "demo.data"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def fusetools(
    *arguments: str | bytes, shell: str = "", **environment: str
) -> tuple[int, bytes, str]:
    """Run the program itself.

    Return status, standard output, standard error. ``shell``: redirections.
    """
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-m", "fusetools", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["hist", "-i", str(DEMO), "--pid", "1" * 30], 2),
        (["hist", "-i", str(DEMO), "--comm", b"\xff"], 0),
        (["hist", "-i", str(DEMO), "--mount", b"\xff"], 1),
        (["slow", "-i", str(DEMO), b"\xff"], 1),
        (["slow", "-i", str(DEMO), "--path", "[z-a]"], 2),
        (["slow", "-i", str(DEMO), "--path", b"\xff"], 2),
        (["slow", "-i", str(DEMO), "--path", "[" * 5000], 0),
        (["slow", "-i", str(DEMO), "-n", "9" * 30], 2),
        (["show", "-i", str(DEMO), "9" * 30], 2),
        (["count", "-i", str(DEMO), "(" * 20_000], 2),
        (["count", "-i", str(DEMO), b"\xff"], 2),
        (["count", "-i", str(DEMO), "(?=x)"], 2),
        (["count", "-i", str(DEMO), "(a*)*(a*)*(a*)*$x"], 1),
        (["record", "--pid", "9" * 30, "--", "true"], 2),
        (["record", "--fs", b"\xff.toml", "--", "true"], 1),
        (["record", "-o", b"/\xff/x", "--", "true"], 1),
        (["record", "--max-size", "9" * 12 + "T", "--", "true"], 2),
        (["record", "--call-graph", "dwarf,", "--", "true"], 2),
        (["record", "--call-graph", "dwarf,511", "--", "true"], 2),
        (["record", "--call-graph", "dwarf,65536", "--", "true"], 2),
        (["record", "--call-graph", "dwarf," + "9" * 30, "--", "true"], 2),
        (["record", "-o", "-", "--", "true"], 1),
        (["merge", "/dev/zero"], 1),
        (["merge", "/dev/tty"], 1),
        (["diff", "/dev/zero", str(DEMO)], 1),
        (["flame", "-i", str(DEMO), "--kallsyms", "/dev/zero", "-o", "x.svg"], 1),
        (["report", b"\xff", "-o", "x.html"], 1),
    ],
)
def test_mistakes_end_in_a_line(
    arguments: list[str | bytes], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found, _, said = fusetools(*arguments)
    assert found == status, said
    assert "Traceback" not in said and "unexpected" not in said
    assert status == 0 or said.strip()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["hist", "--help"],
        ["hist", "-i", str(DEMO)],
        ["export", "-i", str(DEMO), "--format", "csv", "-o", "-"],
        ["report", str(DEMO), "-o", "-"],
        ["merge", str(DEMO), "-o", "-"],
        ["--version"],
    ],
)
def test_an_output_that_cannot_be_written(arguments: list[str]) -> None:
    status, _, said = fusetools(*arguments, shell=">/dev/full")
    assert status == 1 and "No space left on device" in said
    assert said.startswith("fusetools: ") and "Traceback" not in said and "Exception" not in said
    status, _, said = fusetools(*arguments, shell=">&-")
    assert "Traceback" not in said and status in (0, 1)
    if "-o" in arguments or "-i" in arguments:
        assert (status, said.splitlines()[0]) == (
            1,
            "fusetools: cannot write to the standard output",
        )


def test_a_file_does_not_become_the_standard_output(tmp_path: Path) -> None:
    """With all three closed the first opened file was number 0, and the output went into it."""
    place = tmp_path / "x.csv"
    status, _, _ = fusetools("count", "-i", str(DEMO), "--csv", str(place), shell="<&- >&- 2>&-")
    assert status == 0 and place.read_text().startswith("function,")


def test_a_defect_is_one_line(
    run: Invoke, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("1\n2")

    monkeypatch.setattr("fusetools.cli.hist.opened", broken)
    monkeypatch.delenv("FUSETOOLS_DEBUG", raising=False)
    with pytest.raises(SystemExit) as left:
        cli.main(["hist"])
    assert left.value.code == 70
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "unexpected ZeroDivisionError at test_hostile.py:" in said[0]
    assert "report it" in said[1]
    monkeypatch.setenv("FUSETOOLS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["hist"])


def test_regular_expressions_take_no_exponential_time() -> None:
    begin = time.process_time()
    assert _core.matching("(a+)+$", ["a" * 100_000 + "b", "aa"]) == [False, True]
    assert _core.matching("(x|x?)*y", ["x" * 100_000]) == [False]
    assert time.process_time() - begin < 60  # with backtracking: forever
    for wrong in ("(", "(?=x)", "\\", "a{99999999}"):
        with pytest.raises(ValueError, match=r"."):
            _core.matching(wrong, [])


@pytest.mark.parametrize(
    "name", ["=cmd|'/c calc'!A0", "+1+x", "-x", "@x", "'=x", "''=x", "'x", "x"]
)
def test_cells_are_no_formulas(name: str, tmp_path: Path) -> None:
    """They are read again unchanged."""
    counts = Counts((Count(name, "lookup", "kernel", 1, None),), Facts("x", 1.0))
    text = render(counts)
    cell = list(csv.reader(text.splitlines()))[1][0]
    assert cell[0] not in "=+-@"
    (tmp_path / "x.csv").write_text(text)
    assert read_counts(tmp_path / "x.csv").counts[0].function == name


@pytest.mark.parametrize("text", ["9" * 400, "-1", "nan", "inf", "1e400", "x", "", str(1 << 64)])
def test_counts_of_odd_figures(text: str, tmp_path: Path) -> None:
    """A figure of 400 digits ended diff, and NaN was shown as one."""
    good = render(Counts((Count("f", "lookup", "kernel", 1, None),), Facts("x", 1.0)))
    head, row = (line.split(",") for line in good.splitlines())
    for column in ("count", "seconds", "requests", "lost"):
        changed = [text if name == column else cell for name, cell in zip(head, row)]
        (tmp_path / "x.csv").write_text("\n".join(map(",".join, (head, changed))))
        with pytest.raises(Error):
            read_counts(tmp_path / "x.csv")


def test_numbers_stay_numbers() -> None:
    assert "\n-5,'-x,+1.5\n" in "\n" + written((), [["-5", "-x", "+1.5"]])


# Texts that daemons, and users who mount, can choose


def test_a_mount_point_is_one_line() -> None:
    """mountinfo escapes a newline, but no other character that ends a line in Python."""
    line = "36 35 0:99 / {} rw - fuse.x x rw,user_id=0,group_id=0"
    for odd in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r":
        path = f"/tmp/a{odd}" + line.format("/evil").replace("0:99", "0:98").replace(" ", "\\040")
        (mount,) = parse_mountinfo(line.format(path) + "\n")
        assert mount.connection == 99 and mount.path.startswith(f"/tmp/a{odd}36 35 0:98 / /evil")


def test_a_mapped_file_is_one_line(tmp_path: Path) -> None:
    place = tmp_path / "proc/7"
    place.mkdir(parents=True)
    forged = "7f00-7f01 r-xp 00000000 00:01 5 /evil"
    (place / "maps").write_text(f"1000-2000 r-xp 00000000 fe:01 9   /lib/a\x0c{forged}\n")
    (part,) = code(Files(tmp_path), 7)
    assert (part.inode, part.path) == (9, f"/lib/a\x0c{forged}")


def test_text_for_tracefs_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "uprobe_events").touch()
    fs = Tracefs(str(tmp_path))
    good = Probe("fuse_daemon:a_b", "p", "/lib/a:0x1", "daemon", "f", "", "entry")
    fs.add(good)
    assert (tmp_path / "uprobe_events").read_text() == "p:fuse_daemon/a_b /lib/a:0x1\n"
    for place in ("/lib/a\np:evil/e /bin/true:0x1", "/lib/a b:0x1", "/lib/a#:0x1", "/lib/\xe9:0x1"):
        with pytest.raises(Error):
            fs.add(Probe("fuse_daemon:a_b", "p", place, "daemon", "f", "", "entry"))
    for event in ("fuse_daemon:a\n-:x/y", "fuse_daemon:\xe9"):
        with pytest.raises(OSError, match="one line"):
            fs._write(event, f"-:{event}")
    assert (tmp_path / "uprobe_events").read_text().count("\n") == 1


def test_patterns_and_cgroups() -> None:
    assert words.is_pattern("fuse_*") and words.is_pattern("[a-z]*?_x.isra.0")
    assert not any(map(words.is_pattern, ("", "a b", "a\nb", "a;b", "\xe9")))
    assert words.is_cgroup(r"user.slice/a\x2db/fusetools-1")
    assert not words.is_cgroup("a,b") and not words.is_cgroup("a\nb")


# The daemons' files


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", "/dev/zero", "/dev/tty", tmp_path / "none"):
        with pytest.raises(OSError, match=r"."):
            open_regular(str(path))
    os.close(open_regular(sys.executable))


@as_root
def test_readers_of_daemons_files_have_no_rights(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)

    def look() -> str:
        drop_privileges()
        status = Path("/proc/self/status").read_text()
        fields = {line.split(":")[0]: line.split(":")[1].split() for line in status.splitlines()}
        try:
            os.close(os.open(secret, os.O_RDONLY))
            return "it was opened"
        except PermissionError:
            return " ".join(
                [*fields["Uid"], *fields["Groups"], fields["CapEff"][0], *fields["NoNewPrivs"]]
            )

    assert bounded(look, 20) == "65534 65534 65534 65534 0000000000000000 1"


def test_an_answer_has_a_limit_of_size_and_memory() -> None:
    assert bounded(lambda: "x" * 1000, 20, most=1000) == "x" * 1000
    assert bounded(lambda: "x" * 1001, 20, most=1000) is None
    assert bounded(lambda: str(len(bytearray(64 << 20))), 20, memory=256 << 20) == str(64 << 20)
    assert bounded(lambda: str(len(bytearray(512 << 20))), 20, memory=256 << 20) is None


def test_symbols_of_odd_files(tmp_path: Path) -> None:
    library = tmp_path / "x"

    def why() -> str:
        found = Library(path="x", host_path=str(library), inode=1, device="0:1")
        read = symbols.functions([(found, None)])
        assert not read.functions
        return read.unreadable[str(library)]

    library.write_bytes(b"no ELF")
    assert why() == "it is not an ELF file"
    with library.open("wb") as file:  # larger than any library, without a block on the disk
        file.truncate(600 << 20)
    assert why() == "it is larger than 512 MiB"
    library.unlink()
    os.mkfifo(library)
    assert why() == "it is not a file"
    library.unlink()
    assert why() == "No such file or directory"


def test_symbols_of_a_file_that_hangs_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "SECONDS", 0.2)
    monkeypatch.setattr(symbols, "open_regular", lambda _: signal.pause())
    found = Library(path="x", host_path="/x", inode=1, device="0:1")
    unreadable = symbols.functions([(found, None)]).unreadable
    assert unreadable == {"/x": "its symbols take too long, or too much memory, to be read"}


def test_symbols_are_those_of_the_core() -> None:
    own = Library(path=_core.__file__, host_path=_core.__file__, inode=0, device="")
    read = symbols.functions([(own, None)])
    assert not read.unreadable
    assert read.functions[_core.__file__] == _core.elf_functions(_core.__file__)


def test_merging_is_given_up(tmp_path: Path) -> None:
    merge = merger.Merger().merge
    begin = time.monotonic()
    with pytest.raises(merger.Stuck):
        merge([str(DEMO)], str(tmp_path / "x"), "{}", lambda: time.monotonic() > begin)
    merge = merger.Merger().merge
    info = merge([str(DEMO)], str(tmp_path / "y"), "{}", lambda: False, bundles=[])
    mine = _core.merge([str(DEMO)], str(tmp_path / "z"), "{}")
    assert json.loads(json.dumps(info)) == json.loads(json.dumps(mine))
    assert (tmp_path / "y").read_bytes() == (tmp_path / "z").read_bytes()
    merge = merger.Merger().merge
    with pytest.raises(_core.CoreError) as caught:
        merge([str(tmp_path / "none")], str(tmp_path / "x"), "{}", lambda: False, bundles=[])
    assert len(caught.value.args) == 2


def test_a_merger_that_is_never_asked_is_ended() -> None:
    begun = merger.Merger()
    begun.close()
    begun.close()
    assert begun._process.returncode == -signal.SIGKILL


# The core's merge, told apart by the rights of the calling process.
WITHOUT_RIGHTS = """
import json, os, sys
from fusetools.record import merger
def merge(inputs, output, session, opener, kallsyms, **more):
    def answer(ask, *arguments):
        try:
            return ask(*arguments)
        except OSError as error:
            return error.strerror
    first = answer(os.pread, int(inputs[0].rpartition("/")[2]), 4, 0)
    symbols = answer(os.read, int(kallsyms.rpartition("/")[2]), 10)
    number = opener(more["avoid"][0])
    return {
        "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
        "rights": [line.split()[1] for line in open("/proc/self/status") if line[:3] == "Cap"],
        "input": first.decode(), "symbols": symbols.decode(),
        "wrote": answer(os.pwrite, int(output.rpartition("/")[2]), b"x", 0),
        "program": os.pread(number, 4, 0)[1:].decode(),
        "refused": [answer(opener, path) for path in more["avoid"][1:]],
        "itself": [answer(os.open, path, os.O_RDONLY | os.O_NONBLOCK) for path in more["avoid"]],
        "left_out": {},
    }
merger.native.merge = merge
merger.main()
"""


@as_root
def test_merging_has_no_rights(tmp_path: Path) -> None:
    """It reads the files that it was given; of other files only programs."""
    tmp_path.chmod(0o700)
    program, dump, text, fifo = (tmp_path / name for name in ("program", "dump", "text", "fifo"))
    content = Path("/bin/true").read_bytes()
    program.write_bytes(content)
    dump.write_bytes(content[:16] + b"\4\0" + content[18:])  # ET_CORE
    text.write_text("a secret")
    os.mkfifo(fifo)
    paths = [*map(str, (program, dump, text, fifo, tmp_path / "none")), "/etc/shadow", "/dev/zero"]
    names = tmp_path / "kallsyms"
    names.write_text("0000000000000000 T startup_64\n")
    more = {"maps": [], "bundles": [], "avoid": paths, "kallsyms": str(names)}
    asked = json.dumps([[str(DEMO)], str(tmp_path / "x"), "{}", more, None])
    command = [sys.executable, "-c", WITHOUT_RIGHTS]
    done = subprocess.run(command, input=framed(asked.encode()), capture_output=True, check=True)
    answer = json.loads(done.stdout[len(framed(b"")) :])
    assert answer["ids"] == [65534] * 6
    assert answer["rights"][:3] == ["0" * 16] * 3  # inheritable, permitted, effective
    assert (answer["input"], answer["program"], answer["wrote"]) == ("PERF", "ELF", 1)
    assert answer["symbols"] == "0000000000"
    assert set(answer["itself"][:-1]) == {"Permission denied"}
    odd = "Exec format error"
    assert answer["refused"] == [
        *(odd, odd, "Invalid argument", "No such file or directory", odd, "Invalid argument")
    ]
    assert os.stat(tmp_path / "x").st_uid == 0


def test_merging_that_dies_is_no_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program, why in (
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os._exit(3)", "exit status 3"),
        ("raise BaseException('a defect')", "BaseException: a defect"),
        ("raise BaseException('x' * 1000)", f"BaseException: {'x' * 185}"),
    ):
        monkeypatch.setattr(merger, "_CODE", program)
        with pytest.raises(merger.Stuck) as caught:
            merger.Merger().merge([str(DEMO)], str(tmp_path / "x"), "{}", lambda: False)
        assert str(caught.value) == f"the process that merges ended: {why}"


@pytest.mark.parametrize("asked", [b"", framed(b"[[]]")[:-1]])
def test_the_merger_ends_with_its_parent(asked: bytes) -> None:
    code = "from fusetools.record.merger import main; main()"
    done = subprocess.run([sys.executable, "-c", code], input=asked, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("text", ["1" + "0" * 400, "NaN", "-1", "1e400", "true", '"1"'])
def test_a_session_of_odd_seconds(text: str) -> None:
    found, _ = session.read(f'{{"format": 1, "seconds": {text}}}')
    assert found.seconds is None or text == "true"


# Commands


@as_root
def test_root_runs_nothing_of_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, open_to_all, ours = (tmp_path / name for name in ("theirs", "open", "ours"))
    for place in (theirs, open_to_all, ours):
        place.mkdir()
        (place / "perf").write_text("#!/bin/sh\n")
        (place / "perf").chmod(0o755)
    os.chown(theirs, 65534, 65534)
    open_to_all.chmod(0o777)
    path = f"relative::{theirs}:{open_to_all}:{ours}:/usr/bin"
    monkeypatch.setenv("PATH", path)
    assert files.command_path() == f"{ours}:/usr/bin"
    assert Files(Path("/")).which("perf") == str(ours / "perf")
    monkeypatch.setenv("PATH", str(theirs))
    assert files.command_path() == files.TRUSTED
    for name in ("LD_PRELOAD", "PYTHONPATH", "PERF_CONFIG", "PERF_EXEC_PATH", "TMPDIR"):
        monkeypatch.setenv(name, str(theirs))
    assert str(theirs) not in str(files.tool_environment())


# The workload


def mask(numbers: Iterable[int]) -> int:
    return sum(1 << (number - 1) for number in numbers)


def test_a_workload_gets_its_signals_back(tmp_path: Path) -> None:
    """As its own process would have them: in a shell, and under nohup."""
    for ignored in ((), (signal.SIGHUP, signal.SIGUSR1)):
        before = {number: signal.getsignal(number) for number in ignored}
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        expected = {n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN}
        expected -= {signal.SIGPIPE, signal.SIGXFSZ}  # Python's own
        try:
            out = tmp_path / "status"
            words_ = ["sh", "-c", f"grep -E 'Sig(Blk|Ign)' /proc/self/status > {out}"]
            workload = Workload(words_, None, os.environ)
            workload.start()
            workload.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        known = mask(signal.valid_signals())  # without glibc's own, which no program can change
        found = {
            line.split(":")[0]: int(line.split()[1], 16) & known
            for line in out.read_text().splitlines()
        }
        assert found == {"SigBlk": 0, "SigIgn": mask(expected)}


def test_a_workload_ends_where_its_files_may_grow_no_more(tmp_path: Path) -> None:
    """Python ignores SIGXFSZ, and its children inherited that."""
    command = ["sh", "-c", f"ulimit -f 1; exec head -c 100000 /dev/zero > {tmp_path / 'x'}"]
    workload = Workload(command, None, os.environ)
    workload.start()
    workload.wait()
    assert workload.exit_status == 128 + signal.SIGXFSZ
    assert (tmp_path / "x").stat().st_size <= 1024


NAMED = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode("latin-1"), 0, 0, 0)
print(flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("name", ["\xff\xfe", "(x) R 1", "a) S 1 2\n3"])
def test_processes_of_any_name(name: str) -> None:
    """A name that was not UTF-8 ended record if it was the daemon's, and clean if it was
    anybody's."""
    with subprocess.Popen(
        [sys.executable, "-c", NAMED, name], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            begin = started(process.pid)
            fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
            assert begin == int(fields[19])
            assert state._session_of(process.pid, begin) == [process.pid]
            assert state._session_of(process.pid, begin + 1) == []
            assert comm(Files(Path("/")), process.pid)
        finally:
            process.kill()
    assert started(process.pid) is None


def test_clean_names_what_it_removed_harmlessly(
    run: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    removed = Removed(("/tmp/\udcff\x1b[2J/.x.00000000",), ())
    found = SimpleNamespace(clean=lambda: removed, beside=list, unmount=bool, place=tmp_path)
    monkeypatch.setattr(state, "Recordings", lambda: contextlib.nullcontext(found))
    done = run("clean")
    assert done.exit_code == 0
    assert done.output == "removed /tmp/\\udcff\\x1b[2J/.x.00000000\n"


ODD = "/tmp/\udcff\udcfe"
FORGED = "\ud800"  # as it may occur in JSON


def test_names_of_mounts_and_programs_are_any_bytes(tmp_path: Path) -> None:
    """A mount point or a library with such a name ended top and trace, and prevented merging of
    recordings of all mounts."""
    now = _core.Now([], {}, [], {1: ODD}, "x86_64", True, ([], 0, ODD))
    interval = now.take("label", "requests", 9, ODD, {1: ODD})
    assert not interval["rows"]
    for odd in (ODD, FORGED):
        _core.slowest(str(DEMO), [], {}, ([], 0, odd), {1: odd}, ([(1, 2, odd)], [(1, 3, odd)]), 3)
    info = _core.merge(
        [str(DEMO)],
        str(tmp_path / "x"),
        "{}",
        maps=[(7, 4096, 4096, 0, ODD, b"", "/proc/7/root" + ODD)],
        avoid=[ODD],
    )
    assert not info["warnings"]
    if shutil.which("perf") is None:
        return
    command = ["perf", "script", "--show-mmap-events", "-F", "comm", "-i", str(tmp_path / "x")]
    paths = subprocess.run(command, capture_output=True, check=True).stdout
    assert "/tmp/\ufffd\ufffd".encode() in paths


def test_processes_left_behind_are_named() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as shell:
        for _ in range(500):
            found = family(Files(Path("/")), shell.pid)
            if {one.comm for one in found} == {"sh", "sleep"}:
                break
            time.sleep(0.01)
        assert {one.comm for one in found} == {"sh", "sleep"} and not any(one.hung for one in found)
        for one in found:
            os.kill(one.pid, signal.SIGKILL)
