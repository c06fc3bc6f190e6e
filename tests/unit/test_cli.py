"""The command group and its error boundary."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import click
import pytest
from click.testing import CliRunner

from fusetools import __version__, cli, errors
from fusetools.cli.options import coloured
from fusetools.plan.planner import ProbePlan
from fusetools.printable import printable
from fusetools.record.state import Removed

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.main, args)
    return result.exit_code, result.stdout, result.stderr


Failing = Callable[[BaseException], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Make `fusetools hist` raise the given error."""

    def fail_with(error: BaseException) -> None:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(cli.Commands, "get_command", lambda *_: command)

    return fail_with


def test_help_names_every_command_in_order() -> None:
    status, out, _ = run("--help")
    assert status == 0
    at = [out.index(f"\n  {name} ") for name in cli.COMMANDS]
    assert at == sorted(at)
    assert [out.count(f"\n{title}:\n") for title in cli.GROUPS] == [1] * len(cli.GROUPS)


def test_each_commands_help_is_one_line_of_80_columns() -> None:
    said = run("--help")[1].splitlines()
    for name, help_ in cli.COMMANDS.items():
        assert [line for line in said if re.fullmatch(rf"  {name} +{re.escape(help_)}", line)]


@pytest.mark.parametrize("columns", ["40", "80", "160"])
@pytest.mark.parametrize("words", [[], *([name] for name in cli.COMMANDS)], ids=" ".join)
def test_help_fits_into_the_terminal(
    words: list[str], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    wide = [line for line in run(*words, "--help")[1].splitlines() if len(line) > int(columns)]
    assert [line for line in wide if "sudo fusetools" not in line] == []  # a command


def test_the_readmes_table_has_the_groups_in_order() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    rows = re.findall(r"^\| (.*?) \|", readme[readme.index("## The commands") :], re.MULTILINE)
    found = [m for row in rows for m in re.findall(r"\*\*(.+)\*\*|`(?:fusetools )?(\w+)", row)]
    titles = [title for title, _ in found if title]
    assert titles == list(cli.GROUPS)
    named = [name for _, name in found if name in cli.COMMANDS]
    assert list(dict.fromkeys(named)) == list(cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_short_help_is_the_commands_own(name: str) -> None:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None and command.help
    assert " ".join(command.help.split("\n\n")[0].split()) == cli.COMMANDS[name]


def test_version() -> None:
    assert run("--version") == (0, f"fusetools {__version__}\n", "")


def test_an_unknown_command_is_a_usage_error() -> None:
    status, out, err = run("histo")
    assert (status, out) == (2, "")
    assert "histo" in err


def test_similar_commands_are_named() -> None:
    said = run("hits", "lookup")
    assert said[0] == 2
    assert "  why: similar commands: hist\n  fix: fusetools hist lookup\n" in said[2]
    assert "similar" not in run("xyzzy")[2]


def test_a_similar_option_is_named() -> None:
    status, _, error = run("slow", "lookup", "--pids=7", "-n", "3")
    assert (status, error.splitlines()) == (
        2,
        [
            "fusetools: fusetools slow has no option --pids",
            "  why: similar: --pid",
            "  fix: fusetools slow lookup --pid=7 -n 3",
        ],
    )


def test_a_wrong_command_line_shows_the_usage() -> None:
    status, _, error = run("merge")
    assert (status, error.splitlines()) == (
        2,
        [
            "fusetools: Missing argument 'PERF.DATA [TRACE.DAT]...'",
            "  why: usage: fusetools merge [OPTIONS] PERF.DATA [TRACE.DAT]...",
            "  fix: fusetools merge --help",
        ],
    )


@pytest.mark.parametrize(
    ("words", "fixed"),
    [
        (["hist", "{}"], ["hist", "-i", "{}"]),
        (["queue", "{}"], ["queue", "-i", "{}"]),
        (["show", "{}"], ["show", "-i", "{}"]),
        (
            ["flame", "--offcpu", "{}", "-o", "x.svg"],
            ["flame", "--offcpu", "-i", "{}", "-o", "x.svg"],
        ),
    ],
)
def test_a_recording_without_its_option(words: list[str], fixed: list[str], tmp_path: Path) -> None:
    file = tmp_path / "a b.data"
    file.write_bytes(b"PERFILE2")
    status, out, err = run(*(word.format(file) for word in words))
    assert (status, out) == (1, "")
    assert f"{file} is a recording, not an operation" in err
    assert f"  fix: {shlex.join(['fusetools', *(word.format(file) for word in fixed)])}\n" in err


def test_a_trace_dat_is_merged_first(tmp_path: Path) -> None:
    path = tmp_path / "trace.dat"
    path.write_bytes(b"\x17\x08\x44tracing6\0")
    assert (
        f"  fix: fusetools merge perf.data {path} -o merged.data\n"
        in run("hist", "-i", str(path))[2]
    )


@pytest.mark.parametrize(
    ("words", "similar", "fix"),
    [
        (["stages", "lokup"], "similar names: lookup\n", "stages lookup"),
        (["hist", "lokup"], "similar names: lookup\n", "hist lookup"),
        (["count", "cvmfs_lokup"], "similar names: cvmfs_lookup, ", "count cvmfs_lookup"),
        (["errors", "zzz"], "known names: access, batch_forget, ", "count --layer request"),
        (["whatif", "threads=0"], "1 to 65,536\n", "whatif threads=8"),
        (["whatif", "cpus=4"], "it is none of threads, ", "whatif threads=8"),
    ],
)
def test_similar_names_are_in_the_fix(words: list[str], similar: str, fix: str) -> None:
    error = run(*words, "-i", str(DEMO))[2]
    assert f"  why: {similar}" in error
    assert f"  fix: fusetools {fix} -i {DEMO}\n" in error


def test_another_name_of_a_picture_is_in_the_fix(tmp_path: Path) -> None:
    error = run("flame", "-i", str(DEMO), "-o", str(tmp_path / "a.png"))[2]
    assert f"  fix: fusetools flame -i {DEMO} -o {tmp_path / 'a.html'}\n" in error


def test_a_mount_that_is_not_in_a_recording() -> None:
    for words in (["--mount", "/nope"], ["--mount=/nope"]):
        fix = run("slow", "-i", str(DEMO), *words)[2].split("fix: fusetools ")[1]
        assert fix.startswith("slow -i ")
        assert run(*shlex.split(fix))[0] == 0


def test_the_clients_format_is_no_json() -> None:
    assert "--style cvmfs excludes --json" in run("hist", "--style", "cvmfs", "--json")[2]


def test_the_command_for_one_operation_works() -> None:
    printed = run("stages", "-i", str(DEMO))[1]
    (command,) = re.findall(r"the stages of one: fusetools (.*)", printed)
    status, out, _ = run(*shlex.split(command))
    assert status == 0 and out.startswith("lookup: 84 requests")


def test_no_line_ends_in_spaces() -> None:
    for command in ("hist", "count", "stages", "slow", "errors", "queue"):
        printed = run(command, "-i", str(DEMO))[1]
        assert printed and not [line for line in printed.splitlines() if line != line.rstrip()]


def test_an_operation_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "read").write_text("no recording")
    assert "cannot read perf.data" in run("hist", "read")[2]
    (tmp_path / "perf.data").write_bytes(b"PERFILE2")
    assert "is a recording, not an operation" not in run("hist", "-i", "perf.data")[2]


def test_an_error_says_what_why_and_try(failing: Failing) -> None:
    failing(errors.Error("cannot read x", "it is a directory", "fusetools hist -i perf.data"))
    assert run("hist") == (
        1,
        "",
        "fusetools: cannot read x\n  why: it is a directory\n  fix: fusetools hist -i perf.data\n",
    )


def test_several_ways_out_are_listed(failing: Failing) -> None:
    failing(errors.Error("a", "", "b\nc"))
    assert run("hist")[2] == "fusetools: a\n  fix: b\n   or: c\n"


def test_an_error_cannot_steer_the_terminal(failing: Failing) -> None:
    failing(errors.Error("no \x1b[2Jfile", "be\x07ll\u202e", "x\x9b"))
    err = run("hist")[2]
    assert err.replace("\n", "").isprintable()
    assert r"\x1b[2J" in err


def test_an_oserror_is_no_traceback(failing: Failing) -> None:
    failing(PermissionError(13, "Permission denied", "out.csv"))
    assert run("hist") == (1, "", "fusetools: cannot use out.csv\n  why: Permission denied\n")


def test_interrupt_is_quiet(failing: Failing) -> None:
    failing(KeyboardInterrupt())
    assert run("hist") == (130, "", "")


def test_a_defect_of_our_own_is_not_hidden(failing: Failing) -> None:
    failing(ZeroDivisionError())
    assert CliRunner().invoke(cli.main, ["hist"]).exit_code == 70
    debug = {"FUSETOOLS_DEBUG": "1"}
    found = CliRunner().invoke(cli.main, ["hist"], env=debug).exception
    assert isinstance(found, ZeroDivisionError)


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "fusetools", "--help"], stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert done.stderr == b""


# Modules of the standard library that take long to import, and that click does without.
HEAVY = {"asyncio", "csv", "ctypes", "http", "json", "ssl", "subprocess", "tempfile"}
# Modules of fusetools that a command's help may import, besides cli/.
LIGHT = {"", ".errors", ".figures", ".names"}


def loaded_for_help(*commands: str) -> set[str]:
    """Return the modules that are loaded once the help of each command was printed."""
    code = (
        "import sys; from fusetools import cli\n"
        "for command in sys.argv[1:] or [None]:\n"
        "    try: cli.main([command, '--help'] if command else ['--help'])\n"
        "    except SystemExit as ended: assert not ended.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *commands], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_help_loads_no_command() -> None:
    loaded = loaded_for_help()
    ours = {name for name in loaded if name.startswith("fusetools")}
    assert ours == {"fusetools", "fusetools.cli", "fusetools.errors"}
    assert not loaded & HEAVY


def test_a_commands_help_loads_its_options_alone() -> None:
    loaded = loaded_for_help(*cli.COMMANDS)
    ours = {name[len("fusetools") :] for name in loaded if name.startswith("fusetools")}
    assert {f".cli.{name}" for name in cli.COMMANDS} < ours
    assert {name for name in ours if not name.startswith(".cli")} <= LIGHT
    assert not loaded & HEAVY


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("st", "plain,stages plain,stuck"),
        ("hist --lay", "plain,--layer"),
        ("hist --no-such", ""),
        ("stages --by c", "plain,comm plain,cgroup"),
        ("hist -i sam", "file,sam"),
        ("diff sam", "file,sam"),
        ("record -- ls sam", "file,sam"),
    ],
)
def test_completion(words: str, completed: str) -> None:
    """As the shells' own scripts ask; an unknown word is a file's name."""
    environment = {
        **os.environ,
        "_FUSETOOLS_COMPLETE": "bash_complete",
        "COMP_WORDS": f"fusetools {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    command = [sys.executable, "-m", "fusetools"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (" ".join(done.stdout.split()), done.stderr) == (completed, "")


def test_readme_has_each_shells_completion() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for shell in ("bash", "zsh", "fish"):
        assert f"{shell}_source" in readme
        environment = {**os.environ, "_FUSETOOLS_COMPLETE": f"{shell}_source"}
        command = [sys.executable, "-m", "fusetools"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert f"_FUSETOOLS_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize("text", ["a b", "fuse_lookup", "größe", "日本"])
def test_printable_leaves_text_alone(text: str) -> None:
    assert printable(text) == text


def test_printable_escapes() -> None:
    assert printable("a\nb\t\x7f\u200b\u2028\ud800") == r"a\nb\t\x7f\u200b\u2028\ud800"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_any_terminal_can_show_the_help(name: str) -> None:
    assert run(name, "--help")[1].isascii()


def test_all_output_goes_through_say() -> None:
    """The standard output cannot encode the name."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "click.echo":
                names = {keyword.arg for keyword in node.keywords}
                assert "err" in names or path.name == "options.py", ast.unparse(node)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["top", "-n", "0"], "'0' is not a number from 1 to 10,000"),
        (["top", "--interval", "0.01"], "'0.01' is not a number from 0.1 to 60"),
        (["top", "--interval", "x"], "'x' is not a number from 0.1 to 60"),
        (["top", "--older", "-1"], "'-1' is not a number of 0 or more"),
        (["top", "--older", "nan"], "'nan' is not a number of 0 or more"),
        (["top", "--older", "inf"], "'inf' is not a number of 0 or more"),
        (["record", "--keep", "0"], "'0' is not a number from 1 to 10,000"),
        (["show", "0"], "'0' is not a request's number: fusetools slow prints them"),
        (["slow", "--min", "10"], "'10' has no unit: write 10ms or 10s"),
        (["trace", "--min", "1h"], "'1h' is not a time: write seconds (1.5) or 1500ms"),
        (["trace", "--pid", "0"], "'0' is not a process ID"),
        (["record", "--max-size", "1"], "'1' is not a size of 1M or more: write 500M or 2G"),
    ],
)
def test_limits_are_said_in_words(arguments: list[str], why: str) -> None:
    status, _, err = run(*arguments)
    assert status == 2 and why in " ".join(err.split())


def test_stuck_mounts_are_red() -> None:
    assert (
        coloured("/mnt: STUCK: 1 request") == f"/mnt: {click.style('STUCK', fg='red')}: 1 request"
    )
    assert coloured("/mnt/STUCK: quiet") == "/mnt/STUCK: quiet"


@pytest.mark.parametrize(
    ("arguments", "endless"),
    [((), True), (("--duration", "1"), False), (("--", "true"), False), (("--attach", "1"), False)],
)
def test_a_recording_without_an_end_says_how_to_end_it(
    arguments: tuple[str, ...], endless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(_options: object, _arguments: object, tell: Any, *_: object) -> None:
        tell(ProbePlan((), (), ()), Removed((), ()))
        raise errors.Error("nothing was recorded", "")

    monkeypatch.setattr("fusetools.record.waiting.record", record)
    _, _, said = run("record", *arguments)
    assert "fusetools: tracing " in said
    assert ("(Ctrl-C ends)" in said) is endless
