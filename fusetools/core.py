"""Access to the native core. No other module imports the binding; its stub is _core.pyi."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

__all__ = ["OPCODES", "OPERATIONS", "ask", "matching", "native"]


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


def matching(regex: str, texts: Sequence[str]) -> list[bool]:
    """Return for each text whether the regular expression matches somewhere in it.

    The syntax is that of Rust's crate regex (no backtracking). ValueError: it is invalid."""
    try:
        return native.matching(regex, texts)
    except UnicodeEncodeError as error:
        raise ValueError("it is no UTF-8 text") from error
