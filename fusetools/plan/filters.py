"""Filters of events, in the kernel's syntax, with open places.

Only record/ knows the numbers of the threads that a filter selects. So a filter is a value until
perf's command line is made or a file of tracefs is written, and is filled in there, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class OfWorkload:
    """An open place: the thread whose number ``field`` holds may be the workload's."""

    field: str


@dataclass(frozen=True)
class OfDaemons:
    """An open place: the thread whose number ``field`` holds is a daemon's."""

    field: str = "common_pid"


@dataclass(frozen=True)
class OfConnection:
    """An open place: the request is of the connection with this ``number``."""

    number: int


Open = Union[OfWorkload, OfDaemons, OfConnection]


@dataclass(frozen=True)
class Filter:
    """A condition on an event's fields; without parts: it holds for every event.

    ``compound``: it holds an operator, so that it stands in brackets beside another condition.
    """

    parts: tuple[str | Open, ...] = ()
    compound: bool = False

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        """Return the condition to show to a user, with names in its open places."""
        return self.filled(_named)

    def filled(self, fill: Callable[[Open], str]) -> str:
        """Return the condition with the text that ``fill`` gives for each open place."""
        return "".join(part if isinstance(part, str) else fill(part) for part in self.parts)


def _named(place: Open) -> str:
    if isinstance(place, OfConnection):
        return f"connection=={place.number}"
    if isinstance(place, OfWorkload):
        return f"{place.field} >= $workload"
    return f"{place.field} == $threads"


EVERY = Filter()


def condition(text: str) -> Filter:
    """Return a condition such as "id == 7"; "" holds for every event."""
    return Filter((text,), " || " in text or " && " in text) if text else EVERY


def place(of: Open) -> Filter:
    """Return a condition that is filled in later."""
    return Filter((of,))


def grouped(one: Filter) -> Filter:
    """Return the condition in brackets."""
    return Filter(("(", *one.parts, ")"))


def negated(one: Filter) -> Filter:
    """Return the opposite of the condition."""
    return Filter(("!(", *one.parts, ")"), one.compound)


def any_of(*conditions: Filter) -> Filter:
    """Return a condition that holds where one of these does."""
    return _joined(" || ", conditions)


def all_of(*conditions: Filter) -> Filter:
    """Return a condition that holds where all of these do. Those for every event add nothing."""
    wanted = [one for one in conditions if one]
    if len(wanted) > 1:
        wanted = [grouped(one) if one.compound else one for one in wanted]
    return _joined(" && ", wanted)


def _joined(operator: str, conditions: Iterable[Filter]) -> Filter:
    wanted = list(conditions)
    parts: list[str | Open] = []
    for one in wanted:
        parts += [operator] * bool(parts) + list(one.parts)
    return Filter(tuple(parts), len(wanted) > 1 or any(one.compound for one in wanted))
