"""Names that stand in several files are the same in each: CONTRIBUTING.md says which these are."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import click

from fusetools.cli.record import command as record
from fusetools.names import OPCODES
from fusetools.plan.probeset import builtin
from fusetools.render.text.words import WORDS
from fusetools.results.stages import Stage

ROOT = Path(__file__).parents[2]
CORE = ROOT / "fusetools/native/core/src"


def strings(path: str, name: str) -> list[str]:
    """The strings of a constant of the core."""
    text = (CORE / path).read_text()
    constant = re.search(rf"^(?:pub )?const {name}: [^=]+=([^;]+);", text, re.MULTILINE)
    assert constant, f"{path} has no {name}"
    return re.findall(r'"([^"]*)"', constant[1])


def test_operations() -> None:
    unknown, *names = strings("operations.rs", "OPERATIONS")
    assert unknown == "unknown"
    assert {opcode: name for opcode, name in enumerate(names, 1) if name} == OPCODES


def test_stages() -> None:
    first, *others = strings("stitch/cut.rs", "STAGES")
    stages = [first, *strings("stitch/cut.rs", "BETWEEN"), *others]
    assert list(WORDS) == stages
    assert all(name in (Stage.__doc__ or "") for name in stages)
    css = (ROOT / "fusetools/render/html/report.css").read_text()
    assert re.findall(r"^\.s-(\w+) \{ --kind: var\(--s-", css, re.MULTILINE) == stages
    colours = re.findall(r"^\.s-\w+ \{ --kind: var\((--s-\w+)\)", css, re.MULTILINE)
    assert all(f"  {colour}: #" in css for colour in colours)


def test_probe_sets() -> None:
    (option,) = (one for one in record.params if "--fs" in one.opts)
    assert isinstance(option, click.Option)
    table = (ROOT / "docs/probe-sets.md").read_text().partition("\n## ")[0]
    names = [one.name for one in builtin()]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == names
    page = (ROOT / "fusetools/man/fusetools-record.1").read_text()
    for name in names:
        assert f"\n.It Li {name}\n" in page
        assert re.search(rf"\b{name}\b", option.help or ""), f"--fs does not name {name}"


def test_packages() -> None:
    """configs/ lies elsewhere than in fusetools/, so setuptools cannot find them all by itself."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    found = {
        ".".join(file.relative_to(ROOT).parent.parts)
        for file in ROOT.glob("fusetools/**/__init__.py")
    }
    found |= {
        ".".join(("fusetools", *file.relative_to(ROOT).parent.parts))
        for file in ROOT.glob("configs/**/__init__.py")
    }
    assert set(setup["options"]["packages"].split()) == found


def test_linters() -> None:
    """Of one version wherever they are pinned."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    ruff, actionlint = re.findall(r"^ +rev: v([0-9.]+)$", hooks, re.MULTILINE)
    assert f"ruff =={ruff}\n" in (ROOT / "setup.cfg").read_text()
    assert f"/actionlint@v{actionlint}\n" in (ROOT / ".github/workflows/ci.yml").read_text()
