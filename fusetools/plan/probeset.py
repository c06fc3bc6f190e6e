"""Probe sets: TOML files that define which functions of a file system's daemon are callbacks.

A set holds groups, each of functions in one library:

    about = "one line"
    [[group]]
    name = "callbacks"
    optional = false                       # true: only on demand, --fs SET+GROUP
    library = 'libcvmfs_fuse3\\.so[.\\d]*'   # regular expression, the file's whole name
    program = false                        # true: else the daemon's own program, of any name
    uses = 'fuse_new\\w*|fuse_main\\w*'     # only if the daemon imports such a function of that
                                           # library (or none of it: it looks them up at run time)
    unless = 'do_(lookup|read)'            # only if the library has no such function
    function = 'cvmfs::cvmfs_(\\w+)'        # the function's whole name, mangled or plain
    role = "call"                          # or "reply": the function answers a request; "inode":
                                           # it answers with an inode; "listed": it lists a file
                                           # with its inode; "taken": it is entered when a
                                           # thread takes a request, calls without `unique` that
                                           # follow in that thread are of this request
    returns = false                        # probes on entries alone
    exports = ["g_x", "my::x_*"]           # if the library is stripped: the variable that it
                                           # exports, a pointer to a structure with libfuse's table
                                           # of operations, and the name of a callback in it
    abi = "go"                             # how its arguments are passed, "c" or "go"; else as the
                                           # file's language does
    [group.operations]                     # what the function's group matched -> FUSE operation
    forget_multi = "batch_forget"
    [group.arguments]                      # fetch arguments by that name; "all": of every function
    all = { unique = "+8(arg1):u64" }
    read = { fh = "+{fh}(arg5):u64" }
    [group.offsets.fh]                     # number by library, as ``library``; an argument with
    'libfuse3\\.so[.\\d]*' = 16            # {fh} is left out of another one

In a fetch argument (Documentation/trace/uprobetracer.rst) ``argN`` stands for the register of the
function's Nth argument, whatever the architecture.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fusetools.configured import files, tomllib
from fusetools.core import OPERATIONS
from fusetools.errors import Error
from fusetools.host.asuser import Rights, read_input
from fusetools.plan.registers import ARGUMENT

GENERIC = "libfuse"  # for daemons that no other set matches

OFFSET = re.compile(r"\{(\w+)\}")  # in a fetch argument
MOST_OFFSET = 1 << 16

ROLES = ("call", "reply", "inode", "listed", "taken")
HELPERS = ("inode", "listed", "taken")  # useful only with other roles
FIELDS = (
    "unique",
    "opcode",
    "nodeid",
    "req",
    "error",
    "ino",
    "name",
    "attribute",
    "fh",
    "size",
    "off",
)


@dataclass(frozen=True)
class Group:
    """Functions of one library, unless it has one that ``unless`` matches. ``library``,
    ``function``, ``uses`` and ``unless`` match whole names;
    ``operations`` and ``arguments`` are keyed by what ``function``'s first group matched. Without
    ``library`` the file is the daemon's program; with ``program`` also if no library matches.
    ``offsets``: by the name that stands for them in ``arguments``; the first library that matches.
    ``exports``: the variable with a stripped library's callbacks, and their names with "*" for the
    member of libfuse's table (host/exported.py).
    """

    name: str
    library: re.Pattern[str] | None
    function: re.Pattern[str]
    role: str = "call"
    optional: bool = False
    operations: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    program: bool = False
    uses: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    abi: str = ""
    returns: bool = True
    offsets: Mapping[str, tuple[tuple[re.Pattern[str], int], ...]] = field(default_factory=dict)
    exports: tuple[str, str] | None = None


@dataclass(frozen=True)
class ProbeSet:
    """A file system's probes. ``name`` is the file name without its suffix. ``own``: a user's file,
    whose fetch arguments may read any memory of the processes in which its probes fire."""

    name: str
    about: str
    groups: tuple[Group, ...]
    own: bool = False


def builtin() -> tuple[ProbeSet, ...]:
    """Return the sets that come with fusetools, in the order in which they are tried: sets for a
    library, the generic set, sets for the daemon's own program."""
    sets = [parse(file.read_text("utf-8"), str(file)) for file in files("fs")]

    def turn(probe_set: ProbeSet) -> tuple[bool, bool]:
        return all(group.library is None for group in probe_set.groups), probe_set.name == GENERIC

    return tuple(sorted(sets, key=turn))


MOST_BYTES = 1 << 20  # of a probe set's file


def load(path: Path, user: Rights | None = None) -> ProbeSet:
    """Read the set in a file, with the rights of ``user`` (None: our own). Raise Error, with
    file, key and reason, if there is a mistake in it."""
    try:
        text = read_input(str(path), MOST_BYTES, user).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise Error(f"cannot read the probe set {path}", reason or "") from error
    return replace(parse(text, str(path)), own=True)


def parse(text: str, source: str) -> ProbeSet:
    """Parse a text as load() does a file. ``source``: its name in errors."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Error(f"cannot read the probe set {source}", f"no TOML: {error}") from error
    reader = _Reader(source)
    reader.known("", data, ("about", "group"))
    about = reader.text("about", data.get("about", ""))
    groups = data.get("group")
    if not isinstance(groups, list) or not groups:
        raise reader.mistake("group", "at least one [[group]] is needed")
    checked = tuple(_group(reader, f"group {i}", group) for i, group in enumerate(groups, 1))
    names = [group.name for group in checked]
    for name in names:
        if names.count(name) > 1:
            raise reader.mistake("group", f"two groups are named {name!r}")
    if all(group.optional for group in checked):
        raise reader.mistake("group", "every group is optional: nothing would be probed")
    return ProbeSet(Path(source).stem, about, checked)


class _Reader:
    """Checks values, and reports file, key and reason of a mistake."""

    def __init__(self, source: str) -> None:
        self.source = source

    def mistake(self, key: str, reason: str) -> Error:
        return Error(f"mistake in the probe set {self.source}", f"{key}: {reason}")

    def known(self, at: str, data: Mapping[str, object], keys: tuple[str, ...]) -> None:
        for key in data:
            if key not in keys:
                where = f"{at}, {key}" if at else key
                raise self.mistake(where, f"unknown key; known: {', '.join(keys)}")

    def table(self, key: str, value: object) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise self.mistake(key, f"must be a table, not {value!r}")
        return value

    def text(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.mistake(key, f"must be a string, not {value!r}")
        return value

    def pattern(self, key: str, value: object) -> re.Pattern[str]:
        if value is None:
            raise self.mistake(key, "is missing")
        text = self.text(key, value)
        if not text:
            raise self.mistake(key, "is empty")
        try:
            with warnings.catch_warnings():  # about syntax that a later Python may read differently
                warnings.simplefilter("ignore")
                return re.compile(text)
        except re.error as error:
            raise self.mistake(key, f"no regular expression: {error}") from error


def _group(reader: _Reader, at: str, value: object) -> Group:
    data = reader.table(at, value)
    keys = ("name", "optional", "library", "program", "uses", "unless", "function", "role", "abi")
    reader.known(at, data, (*keys, "returns", "exports", "operations", "arguments", "offsets"))
    name = reader.text(f"{at}, name", data.get("name", "callbacks"))
    if not re.fullmatch(r"[\w-]+", name):
        raise reader.mistake(f"{at}, name", f"{name!r} is no plain word")
    optional = data.get("optional", False)
    if not isinstance(optional, bool):
        raise reader.mistake(f"{at}, optional", "must be true or false")
    program = data.get("program", False)
    if not isinstance(program, bool):
        raise reader.mistake(f"{at}, program", "must be true or false")
    returns = data.get("returns", True)
    if not isinstance(returns, bool):
        raise reader.mistake(f"{at}, returns", "must be true or false")
    library = None
    if not program or "library" in data:
        library = reader.pattern(f"{at}, library", data.get("library"))
    abi = reader.text(f"{at}, abi", data.get("abi", ""))
    if abi not in ("", "c", "go"):
        raise reader.mistake(f"{at}, abi", f"{abi!r} is none of 'c', 'go'")
    role = reader.text(f"{at}, role", data.get("role", "call"))
    if role not in ROLES:
        names = ", ".join(repr(name) for name in ROLES)
        raise reader.mistake(f"{at}, role", f"{role!r} is none of {names}")
    function = reader.pattern(f"{at}, function", data.get("function"))
    operations: dict[str, str] = {}
    for key, operation in reader.table(f"{at}, operations", data.get("operations", {})).items():
        if not isinstance(operation, str) or operation not in OPERATIONS:
            where = f"{at}, operations, {key}"
            raise reader.mistake(where, f"{operation!r} is no FUSE operation (lookup, read …)")
        operations[key] = operation
    everything = reader.table(f"{at}, arguments", data.get("arguments", {})).get("all", {})
    serves_all = "opcode" in reader.table(f"{at}, arguments, all", everything)
    if serves_all and (role != "call" or operations):
        reason = "is for calls of one function that serves all operations"
        raise reader.mistake(f"{at}, arguments, all, opcode", reason)
    if role == "call" and not serves_all:
        if not operations:
            raise reader.mistake(f"{at}, operations", "is missing: which function is which?")
        if function.groups != 1:
            reason = "needs one group (…) that matches the name used in operations"
            raise reader.mistake(f"{at}, function", reason)
    exports = data.get("exports")
    if exports is not None:
        exports = _exports(reader, f"{at}, exports", exports, role, function)
    offsets: dict[str, tuple[tuple[re.Pattern[str], int], ...]] = {}
    for key, by_library in reader.table(f"{at}, offsets", data.get("offsets", {})).items():
        where = f"{at}, offsets, {key}"
        rows = []
        for pattern, number in reader.table(where, by_library).items():
            if type(number) is not int or not 0 <= number < MOST_OFFSET:
                raise reader.mistake(f"{where}, {pattern}", f"{number!r} is no offset in bytes")
            rows.append((reader.pattern(f"{where}, {pattern}", pattern), number))
        offsets[key] = tuple(rows)
    arguments: dict[str, dict[str, str]] = {}
    for key, wanted in reader.table(f"{at}, arguments", data.get("arguments", {})).items():
        where = f"{at}, arguments, {key}"
        known = key in operations if role == "call" else function.groups == 1
        if key != "all" and not known:
            raise reader.mistake(where, "is not in operations")
        arguments[key] = {
            argument: _fetch(reader, f"{where}, {argument}", argument, fetch, abi, offsets)
            for argument, fetch in reader.table(where, wanted).items()
        }
    return Group(
        name=name,
        library=library,
        function=function,
        role=role,
        optional=optional,
        operations=operations,
        arguments=arguments,
        program=program,
        uses=reader.pattern(f"{at}, uses", data["uses"]) if "uses" in data else None,
        unless=reader.pattern(f"{at}, unless", data["unless"]) if "unless" in data else None,
        abi=abi,
        returns=returns,
        offsets=offsets,
        exports=exports,
    )


def _exports(
    reader: _Reader, at: str, value: object, role: str, function: re.Pattern[str]
) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise reader.mistake(at, "must be a list of a variable and the name of a callback")
    variable, name = (reader.text(at, each) for each in value)
    if not re.fullmatch(r"\w+", variable):
        raise reader.mistake(at, f"{variable!r} is no plain word")
    if role != "call" or not function.fullmatch(name.replace("*", "lookup")):
        raise reader.mistake(at, f"{name!r} is no callback that function matches")
    return variable, name


def _fetch(
    reader: _Reader, at: str, name: str, value: object, abi: str, offsets: Mapping[str, object]
) -> str:
    if name not in FIELDS:
        raise reader.mistake(at, f"unknown argument; known: {', '.join(FIELDS)}")
    fetch = reader.text(at, value)
    for offset in OFFSET.findall(fetch):
        if offset not in offsets:
            raise reader.mistake(at, f"{{{offset}}} is not in offsets")
    # dereferences +N( … ), one argN, a type; nothing that could end the kernel's line
    if not re.fullmatch(r"(?:[+-]u?(?:\d+|\{\w+\})\()*arg\d\)*(?::\w+)?", fetch) or (
        fetch.count("(") != fetch.count(")")
    ):
        raise reader.mistake(at, f"{fetch!r} is no fetch argument such as '+8(arg1):u64'")
    match = ARGUMENT.search(fetch)
    most = 9 if abi == "go" else 6
    if match and not 1 <= int(match[1]) <= most:
        raise reader.mistake(at, f"only arg1 to arg{most} are passed in registers")
    return fetch
