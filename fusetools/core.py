"""Access to the native core. No other module imports the binding; its stub is _core.pyi."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from fusetools import __version__
from fusetools.errors import RECORD, Error

try:
    from fusetools import _core as native
except ImportError as error:
    raise Error("fusetools is not built", str(error), "make build") from error
_built = getattr(native, "__version__", "older")
if _built != __version__:
    why = f"fusetools is {__version__}, its native core {_built}"
    raise Error("fusetools and its native core differ in version", why, "make build")

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    Arguments = ParamSpec("Arguments")
T = TypeVar("T")

# FUSE operations by opcode, and their names.
OPCODES = native.OPCODES
OPERATIONS = frozenset(OPCODES.values())
# Other opcodes, such as those of newer kernels, are named by their number. A pattern with wildcards
# is tried on the first ones: more than any kernel has.
_OTHER = re.compile(r"opcode_[0-9]{1,10}")
LATER = tuple(f"opcode_{number}" for number in range(10_000))

__all__ = ["LATER", "OPCODES", "OPERATIONS", "ask", "matching", "names_operation", "native"]


def ask(
    question: Callable[Arguments, T], *arguments: Arguments.args, **more: Arguments.kwargs
) -> T:
    """Call a function of the core and return its answer. Raise Error if the recording cannot be
    read."""
    try:
        return question(*arguments, **more)
    except native.CoreError as error:
        what, why = (*map(str, error.args), "", "")[:2]
        raise Error(what, why, RECORD) from error


@lru_cache(maxsize=1024)
def names_operation(pattern: str) -> bool:
    """Return whether a shell pattern matches an operation's name."""
    if any(fnmatchcase(name, pattern) for name in OPERATIONS) or _OTHER.fullmatch(pattern):
        return True
    return any(fnmatchcase(name, pattern) for name in LATER)


def matching(regex: str, texts: Sequence[str]) -> list[bool]:
    """Return for each text whether the regular expression matches somewhere in it.

    The syntax is that of Rust's crate regex (no backtracking). ValueError: it is invalid."""
    try:
        return native.matching(regex, texts)
    except UnicodeEncodeError as error:
        raise ValueError("it is no UTF-8 text") from error
