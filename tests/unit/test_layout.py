"""Imports go one way: no circle, no import upwards, and one importer of the native core. Only some
folders read the machine or print, and renderers read results alone (ARCHITECTURE.md).

LAYERS are from the bottom up; a module imports its own layer and those below. Imports under
TYPE_CHECKING and those inside of functions count like all others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = (
    ("__init__",),
    ("flame",),  # knows nothing of the rest
    ("configured", "errors", "names", "printable", "figures", "starts"),
    ("patterns",),
    ("core", "csvfile", "extras", "reasons"),
    ("host",),
    ("output", "session", "web"),
    ("plan",),
    ("results",),
    ("record", "answers"),
    ("stuck",),
    ("live",),
    ("recording",),
    ("experiments",),
    ("report",),
    ("render",),
    ("cli",),
    ("man", "__main__"),
)
MACHINE = re.compile("/(proc|sys)(/|$)")
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for top in ("fusetools", "flame") for path in (ROOT / top).rglob("*.py"))


def module(path: Path) -> str:
    """Return the module's name as installed: flame/ is fusetools.flame."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts if parts[0] == "fusetools" else ("fusetools", *parts))
    return name.removesuffix(".__init__")


MODULES = {module(path) for path in FILES}
BINDINGS = ("_core", "_inferno")


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of fusetools that a file imports.

    Imports are absolute, but those in flame/ are relative, so that it does not know where it is
    installed.
    """
    in_flame = path.parent == ROOT / "flame"
    for node in ast.walk(ast.parse(path.read_text())):
        level = 0
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            level = node.level
            base = ".".join(filter(None, ("fusetools.flame" if level else "", node.module)))
            found = [alias.name for alias in node.names if alias.name not in BINDINGS]
            inside = [f"{base}.{name}" for name in found]
            names = [name if name in MODULES else base for name in inside]
        else:
            continue
        own = [name for name in names if name.split(".")[0] == "fusetools"]
        assert not own or level == in_flame, f"{path}: {ast.unparse(node)}"
        yield from own


def layer(name: str) -> str:
    return [*name.split("."), "__init__"][1]


def test_each_module_has_its_layer() -> None:
    assert {layer(name) for name in MODULES} == set(HEIGHT)


@pytest.mark.parametrize("path", FILES, ids=module)
def test_no_import_goes_up(path: Path) -> None:
    own = layer(module(path))
    for name in imported(path):
        if own == "__init__":  # its names are loaded on first use
            continue
        other = layer(name)
        if other == "configs":
            continue
        same = HEIGHT[other] == HEIGHT[own] and other != own
        assert HEIGHT[other] <= HEIGHT[own] and not same, f"{module(path)} imports {name}"


def test_renderers_read_results_alone() -> None:
    small = {"__init__", "csvfile", "errors", "figures", "names", "printable", "reasons", "session"}
    allowed = {"render", "results", "flame", *small}
    for path in FILES:
        own = module(path)
        others = {name for name in imported(path) if layer(name) not in allowed}
        assert layer(own) != "render" or not others, f"{own} imports {', '.join(others)}"


def no_circle(edges: Mapping[str, set[str]]) -> None:
    done: set[str] = set()

    def follow(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way[way.index(name) :], name))
        if name not in done and name in edges:
            for other in sorted(edges[name] - {name}):
                follow(other, (*way, name))
            done.add(name)

    for name in edges:
        follow(name, ())


def test_no_circle() -> None:
    edges = {module(path): {n for n in imported(path) if n in MODULES} for path in FILES}
    del edges["fusetools"]
    no_circle(edges)


@pytest.mark.parametrize("crate", ["core", "py"])
def test_no_circle_in_the_core(crate: str) -> None:
    """Between its modules, and between the files of each; a file and those below it count as
    one."""
    top = ROOT / "fusetools" / "native" / crate / "src"
    files = {path.relative_to(top).with_suffix("").parts: path for path in top.rglob("*.rs")}
    rooms: dict[str, set[str]] = {}
    inside: dict[str, set[str]] = {}
    for parts, path in files.items():
        text = path.read_text().partition("#[cfg(test)]")[0]
        if parts != ("lib",):
            used = re.findall(r"\bcrate::([a-z_]+)", text)
            rooms.setdefault(parts[0], set()).update(n for n in used if (n,) in files)
        if len(parts) > 1:
            above = "::".join(("crate", *parts[:-1]))
            used = re.findall(rf"\b(?:super|{above})::([a-z_]+)", text)
            siblings = {(*parts[:-1], name) for name in used} & files.keys()
            inside["::".join(parts)] = {"::".join(sibling) for sibling in siblings}
    assert any(rooms.values()) and (crate == "py" or any(inside.values()))
    no_circle(rooms)
    no_circle(inside)


def test_the_binding_has_one_importer() -> None:
    importers = {
        module(path)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and (node.module == "fusetools._core" or "_core" in {a.name for a in node.names})
    }
    assert importers == {"fusetools.core"}


def strings(tree: ast.AST) -> Iterator[str]:
    """Return all strings except docstrings; the parts of an f-string."""
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in documented:
            yield text


@pytest.mark.parametrize("path", FILES, ids=module)
def test_the_machine_is_read_in_few_places(path: Path) -> None:
    """Other folders may name a file of /proc to the user, but have no path that begins there."""
    if layer(module(path)) not in ("host", "record", "stuck", "live"):
        paths = [text for text in strings(ast.parse(path.read_text())) if MACHINE.match(text)]
        assert not paths, f"{module(path)} reads {', '.join(paths)}: host/ does that for others"


def test_only_the_command_line_prints() -> None:
    """Only Output hands out the stream to print into, for -o -."""
    for path in FILES:
        if layer(module(path)) in ("cli", "man") or path.name == "__main__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            name = ast.unparse(called) if called else ""
            assert name not in ("print", "click.echo", "sys.exit"), f"{path}: {name}()"
            if isinstance(node, ast.Attribute) and module(path) != "fusetools.output":
                name = ast.unparse(node)
                assert name not in ("sys.stdout", "sys.stderr"), f"{path}: {name}"
