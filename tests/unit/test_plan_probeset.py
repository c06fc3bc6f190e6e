"""The installed probe sets, and error messages about mistakes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fusetools.errors import Error
from fusetools.plan.probeset import Group, builtin, load, parse
from fusetools.plan.registers import fetch

ROOT = Path(__file__).parents[2]
GOOD = """
[[group]]
library = 'libx\\.so'
function = 'x_(\\w+)'
[group.operations]
look = "lookup"
[group.arguments]
all = { unique = "+8(arg1):u64" }
look = { name = "+0(+16(arg3)):string" }
"""


def matches(group: Group, name: str) -> bool:
    return bool(group.library and group.library.fullmatch(name))


def test_builtin() -> None:
    sets = {one.name: one for one in builtin()}
    # sets of a file system, of an API, the generic one, and those that look into the daemon's
    # program
    libraries = ["cvmfs", "libfuse_highlevel", "libfuse"]
    assert list(sets) == [*libraries, "bazil", "fuser", "gofuse", "jacobsa", "libfuse_inside"]
    cvmfs, libfuse = sets["cvmfs"], sets["libfuse"]
    callbacks, inodes, stub = cvmfs.groups
    for name in ("libcvmfs_fuse3.so.2.12.0", "libcvmfs_fuse.so", "libcvmfs_fuse3_debug.so.2.12.0"):
        assert matches(callbacks, name)
        assert not matches(stub, name)
    assert not matches(callbacks, "libcvmfs_fuse3_stub.so.2.12.0")
    assert matches(stub, "libcvmfs_fuse3_stub.so.2.12.0") and stub.optional
    assert len(callbacks.operations) == 14
    assert callbacks.operations == stub.operations
    assert callbacks.exports == ("g_cvmfs_exports", "cvmfs::cvmfs_*") and not stub.exports
    for name in ("libfuse3.so.3.14.0", "libfuse3.so.4", "libfuse.so.2.9.9"):
        assert matches(libfuse.groups[0], name)
        assert matches(inodes, name)
    assert libfuse.groups[0].role == "reply" and inodes.role == "inode"
    assert not matches(libfuse.groups[0], "libcvmfs_fuse3.so.2.12.0")


def test_the_worked_examples() -> None:
    """One for each language: docs/probe-sets.md shows complete probe sets."""
    text = (ROOT / "docs" / "probe-sets.md").read_text()
    _, examples = text.split("\n## Examples\n")
    shown = dict(part.split("\n", 1) for part in examples.split("\n### ")[1:])
    assert list(shown) == ["C, low-level API", "C, high-level API", "C++", "Rust", "Go"]
    for language, part in shown.items():
        example = "\n".join(line for line in part.splitlines() if line.startswith("    "))
        own = parse(textwrap.dedent(example), f"{language}.toml")
        assert own.groups[0].operations, language


def test_a_good_one() -> None:
    probe_set = parse(GOOD, "/home/me/mine.toml")
    assert probe_set.name == "mine"
    (group,) = probe_set.groups
    assert group.name == "callbacks" and not group.optional
    assert group.operations == {"look": "lookup"}


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ("[[group]]", "[[group]", "", "no TOML"),
        ("[[group]]", "grp = 1\n[[group]]", "grp", "unknown key; known: about, group"),
        ("[[group]]", "about = 1\n[[group]]", "about", "must be a string, not 1"),
        (GOOD, "", "group", "at least one [[group]]"),
        (GOOD, "group = 1", "group", "at least one [[group]]"),
        (GOOD, "group = [1]", "group 1", "must be a table"),
        ("library", "librari", "group 1, librari", "unknown key; known: name,"),
        ("library = 'libx\\.so'", "", "group 1, library", "is missing"),
        ("'libx\\.so'", "''", "group 1, library", "is empty"),
        ("'libx\\.so'", "'('", "group 1, library", "no regular expression"),
        ("'libx\\.so'", "3", "group 1, library", "must be a string, not 3"),
        ("'x_(\\w+)'", "'x_\\w+'", "group 1, function", "needs one group"),
        ("'x_(\\w+)'", "'(x)_(\\w+)'", "group 1, function", "needs one group"),
        ('"lookup"', '"locup"', "group 1, operations, look", "'locup' is no FUSE operation"),
        ('"lookup"', "7", "group 1, operations, look", "7 is no FUSE operation"),
        ('"lookup"', "[1]", "group 1, operations, look", "[1] is no FUSE operation"),
        ('look = "lookup"', "", "group 1, operations", "is missing"),
        ("[group.arguments]", "role = 'x'\n[group.arguments]", "", "operations, role"),
        ("library", "role = 'x'\nlibrary", "group 1, role", "none of 'call', 'reply', 'inode'"),
        ("library", "optional = 1\nlibrary", "group 1, optional", "must be true or false"),
        ("library", "optional = true\nlibrary", "group", "nothing would be probed"),
        ("library", "returns = 1\nlibrary", "group 1, returns", "must be true or false"),
        ("library", "name = 'a b'\nlibrary", "group 1, name", "no plain word"),
        ("look = {", "loop = {", "group 1, arguments, loop", "is not in operations"),
        ("unique =", "unic =", "group 1, arguments, all, unic", "unknown argument; known: unique"),
        ("+8(arg1):u64", "+8(arg1:u64", "group 1, arguments, all, unique", "no fetch argument"),
        ("+8(arg1):u64", "+8(%di):u64", "group 1, arguments, all, unique", "no fetch argument"),
        ("+8(arg1):u64", "arg9:u64", "group 1, arguments, all, unique", "arg1 to arg6"),
        ("+8(arg1):u64", "arg1 b=%si", "group 1, arguments, all, unique", "no fetch argument"),
        ('"+8(arg1):u64"', "8", "group 1, arguments, all, unique", "must be a string, not 8"),
        ('"+8(arg1):u64"', '"+{a}(arg1):u64"', "group 1, arguments, all, unique", "{a} is not in"),
        (
            "[group.arg",
            "[group.offsets]\na = 5\n[group.arg",
            "group 1, offsets, a",
            "must be a table",
        ),
        (
            "[group.arg",
            "[group.offsets.a]\n'x' = -5\n[group.arg",
            "group 1, offsets, a, x",
            "no offset",
        ),
        (
            "[group.arg",
            "[group.offsets.a]\n'(' = 5\n[group.arg",
            "group 1, offsets, a, (",
            "no reg",
        ),
        ('{ unique = "+8(arg1):u64" }', "5", "group 1, arguments, all", "must be a table"),
        (
            "unique = ",
            'opcode = "+4(arg1):u16", unique = ',
            "group 1, arguments, all, opcode",
            "is for calls of one function",
        ),
        ("library", "exports = 'x'\nlibrary", "group 1, exports", "must be a list"),
        ("library", "exports = ['x', 'x_*', 'y']\nlibrary", "group 1, exports", "must be a list"),
        ("library", "exports = ['x y', 'x_*']\nlibrary", "group 1, exports", "no plain word"),
        ("library", "exports = ['x', 7]\nlibrary", "group 1, exports", "must be a string, not 7"),
        ("library", "exports = ['x', 'y_*']\nlibrary", "group 1, exports", "no callback that"),
    ],
)
def test_a_mistake_is_told_with_file_key_and_reason(
    old: str, new: str, key: str, reason: str
) -> None:
    assert old in GOOD
    with pytest.raises(Error) as caught:
        parse(GOOD.replace(old, new, 1), "/home/me/mine.toml")
    assert "/home/me/mine.toml" in caught.value.what
    assert reason in caught.value.why
    assert caught.value.why.startswith(key)
    assert "\n" not in caught.value.what + caught.value.why


def test_two_groups_of_one_name() -> None:
    with pytest.raises(Error, match="mine") as caught:
        parse(GOOD + GOOD, "mine.toml")
    assert caught.value.why == "group: two groups are named 'callbacks'"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Error) as caught:
        load(tmp_path / "none.toml")
    assert caught.value.why == "No such file or directory"
    (tmp_path / "latin.toml").write_bytes(b"about = '\xe9'")
    with pytest.raises(Error) as caught:
        load(tmp_path / "latin.toml")
    assert caught.value.why == "it is no UTF-8 text"


def test_registers() -> None:
    assert fetch("+8(arg1):u64", "x86_64") == "+8(%di):u64"
    assert fetch("+0(arg3):string", "aarch64") == "+0(%x2):string"
    assert fetch("arg6", "s390x") is None  # five are in registers there
    assert fetch("arg1", "vax") is None
