"""Lists that stand in several files agree: CONTRIBUTING.md names them."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import click

from fusetools import core
from fusetools.cli.record import command as record
from fusetools.names import LAYERS
from fusetools.plan.probeset import builtin
from fusetools.render.text.words import WORDS

ROOT = Path(__file__).parents[2]
CORE = ROOT / "fusetools/native/core/src"


def strings(path: str, name: str) -> list[str]:
    """Return the strings of a constant of the core."""
    text = (CORE / path).read_text()
    constant = re.search(rf"^(?:pub )?const {name}: [^=]+=([^;]+);", text, re.MULTILINE)
    assert constant, f"{path} has no {name}"
    return re.findall(r'"([^"]*)"', constant[1])


def test_operations() -> None:
    unknown, *names = strings("operations.rs", "OPERATIONS")
    assert unknown == "unknown"
    assert {opcode: name for opcode, name in enumerate(names, 1) if name} == core.OPCODES
    assert core.OPCODES[44] == "readdirplus"


def test_layers() -> None:
    assert tuple(strings("events.rs", "LAYERS")) == LAYERS


def test_stages() -> None:
    first, *others = strings("requests/stitch/cut.rs", "STAGES")
    stages = [first, *strings("requests/stitch/cut.rs", "BETWEEN"), *others]
    stages[stages.index("reply") + 1 : 0] = strings("requests/stitch/cut.rs", "REFUSED")
    assert list(WORDS) == stages
    page = (ROOT / "fusetools/man/fusetools-stages.1").read_text()
    assert [page.count(f"\n.It {name}\n") for name, *_ in WORDS.values()] == [1] * len(WORDS)
    css = (ROOT / "fusetools/render/html/report.css").read_text()
    assert {*re.findall(r"--s-(\w+)", css)} <= {*stages}


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


def setup() -> configparser.ConfigParser:
    found = configparser.ConfigParser()
    found.read(ROOT / "setup.cfg")
    return found


def elsewhere() -> dict[str, Path]:
    """Return the packages that are not in fusetools/, with their folders."""
    lines = setup()["options"]["package_dir"].strip().splitlines()
    return {name: ROOT / place for name, place in (line.split(" = ") for line in lines)}


def folder(package: str) -> Path:
    top, *inside = package.split(".")[1:] or [""]
    return elsewhere().get(f"fusetools.{top}", ROOT / "fusetools" / top).joinpath(*inside)


def test_packages() -> None:
    """setup.cfg lists every package: setuptools cannot find those outside of fusetools/."""
    tops = {"fusetools": ROOT / "fusetools", **elsewhere()}
    assert {path.name for path in tops.values()} == {"fusetools", "flame", "configs"}
    found = {
        ".".join((name, *file.parent.relative_to(path).parts))
        for name, path in tops.items()
        for file in path.glob("**/__init__.py")
    }
    assert set(setup()["options"]["packages"].split()) == found


def test_sdist_and_wheel_have_all_files() -> None:
    """Data files are in package_data, the sources of the native modules in MANIFEST.in."""
    data = {
        path
        for name, patterns in setup()["options.package_data"].items()
        for pattern in patterns.split(", ")
        for path in folder(name).glob(pattern)
    }
    sources = {
        path
        for line in (ROOT / "MANIFEST.in").read_text().splitlines()
        if line.startswith("recursive-include ")
        for pattern in line.split()[2:]
        for path in (ROOT / line.split()[1]).rglob(pattern)
    }
    suffixes = {".rs", ".toml", ".css", ".html", ".js", ".1", ".typed"}
    for top in ("fusetools", "flame", "configs"):
        files = {path for path in (ROOT / top).rglob("*") if path.suffix in suffixes}
        assert files
        for path in files:
            assert path in (sources if "native" in path.parts else data), path


def test_linters() -> None:
    """Each linter has one version in all files that pin it."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    ruff, actionlint = re.findall(r"^ +rev: v([0-9.]+)$", hooks, re.MULTILINE)
    assert f"ruff =={ruff}\n" in (ROOT / "setup.cfg").read_text()
    assert f"/actionlint@v{actionlint}\n" in (ROOT / ".github/workflows/ci.yml").read_text()
