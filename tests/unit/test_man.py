"""Man pages and the command reference agree with the commands."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import data
import pytest
from fixtures import Invoke

from fusetools import cli, man
from fusetools.render.json.schema import schema

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path for path in sorted(Path(man.__file__).parent.glob("*.1"))}
COMMANDS = list(cli.COMMANDS)  # each has a page


def options(name: str) -> list[str]:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None
    return [opt for p in command.params if isinstance(p, click.Option) for opt in p.opts]


def test_the_reference_is_up_to_date() -> None:
    assert (ROOT / "docs" / "commands.md").read_text() == man.reference(), (
        "run: python -m fusetools.man"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_page(name: str) -> None:
    page = PAGES[f"fusetools-{name}"].read_text()
    for option in options(name):
        assert re.search(rf"Fl {re.escape(option[1:])}\b", page), f"{option} is not in the page"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_pages_name_is_the_commands_help(name: str) -> None:
    said = re.search(r"^\.Nd (.*)$", PAGES[f"fusetools-{name}"].read_text(), re.MULTILINE)
    help_ = cli.COMMANDS[name]
    assert said and said[1] == help_[0].lower() + help_[1:-1]


def test_every_command_is_in_the_first_page() -> None:
    page = PAGES["fusetools"].read_text()
    for title, commands in cli.GROUPS.items():
        listed = "".join(f".It Cm {name}\n{help_}\n" for name, help_ in commands.items())
        assert f"\n.Ss {title}\n.Bl -tag -width overhead\n{listed}.El\n" in page
    for name in cli.COMMANDS:
        assert f"\n.Xr fusetools-{name} 1 ,\n" in page[page.index(".Sh SEE ALSO") :]


def keys(value: object) -> set[str]:
    """Return the keys of all objects that a schema describes."""
    if not isinstance(value, dict):
        return set()
    parts = [keys(item) for item in value.values()]
    return set(value.get("properties", ())).union(*parts)


@pytest.mark.parametrize("name", [name for name in COMMANDS if "--json" in options(name)])
def test_pages_name_keys_of_the_schema(name: str) -> None:
    page = PAGES[f"fusetools-{name}"].read_text()
    paragraphs = re.split(r"(?m)^(?=\.(?:Pp|Sh|Ss|It|El)\b)", page)
    text = "".join(part for part in paragraphs if "Fl -json" in part)
    names = set(re.findall(r"docs/schema/([\w-]+)\.json", text))
    assert name in names
    words = re.findall(r"Li (.*)", text)
    named = {word for line in words for word in line.split() if re.fullmatch("[a-z_]+", word)}
    assert named <= set().union(*(keys(schema(name)) for name in names))


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_their_parts(page: str) -> None:
    parts = re.findall(r"^\.Sh (.*)$", PAGES[page].read_text(), re.MULTILINE)
    wanted = {"NAME", "SYNOPSIS", "DESCRIPTION", "FIELDS", "OVERHEAD", "EXAMPLES", "CAVEATS"}
    assert wanted <= set(parts)


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_well_formed(page: str) -> None:
    if not shutil.which("mandoc"):
        pytest.skip("no mandoc")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", str(PAGES[page])], capture_output=True, text=True
    )
    # The pages of fuse(4) and the like may not be installed.
    complaints = [line for line in done.stdout.splitlines() if "referenced manual" not in line]
    assert complaints == []


REAL = [
    "hist",
    "count",
    "stages",
    "diff",
    "graph",
    "compare",
    "slow",
    "show",
    "errors",
    "queue",
    "flame",
    "why",
]
EXAMPLE = re.compile(
    rf"(^\$ (fusetools (?:{'|'.join(REAL)})(?: [^|\n]*)?)\n)((?:.*\n)*?)(?=\.Ed)", re.M
)
RECORDINGS = {
    "perf.data": "cernvmfs-6.1/perf.data.zst",
    "linux-6.1.data": "kernels/6.1.0-56-amd64/recording/perf.data.zst",
    "linux-7.2.data": "kernels/7.2.13+deb14-amd64/recording/perf.data.zst",
}


@pytest.mark.parametrize("name", REAL)
def test_examples_are_real(
    name: str, run: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = PAGES[f"fusetools-{name}"]
    text = path.read_text()
    example = EXAMPLE.search(text)
    assert example
    for recording, source in RECORDINGS.items():
        if name in ("diff", "compare") or recording == "perf.data":
            data.unpack(source, tmp_path / recording)
    monkeypatch.chdir(tmp_path)
    if name in ("stages", "why"):
        shutil.copy(ROOT / "samples/recordings/demo.data", "perf.data")
    if name in ("graph", "flame"):
        data.unpack("cernvmfs-6.1/trace.dat.zst", tmp_path / "trace.dat")
        assert run("merge", "perf.data", "trace.dat", "-o", "perf.data").exit_code == 0
    result = run(*example[2].split()[1:])
    if os.environ.get("BLESS"):
        path.write_text(text[: example.start(3)] + result.stdout + text[example.end(3) :])
        return
    assert example[3] == result.stdout


def test_the_python_example_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"^>>> (?:.*\n)*?(?=\.Ed)", PAGES["fusetools"].read_text(), re.MULTILINE)
    assert block
    data.unpack(RECORDINGS["perf.data"], tmp_path / "perf.data")
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(block[0], {}, "fusetools.1", None, None)
    failures: list[str] = []
    doctest.DocTestRunner().run(test, out=failures.append)
    assert not failures, "".join(failures)
