"""Thresholds of findings, from configs/rules/*.toml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from fusetools.configured import files, tomllib

ALL = "all"  # the rule whose thresholds hold for every finding


class Threshold(NamedTuple):
    """A figure from which on a finding is made; why from there, and where it comes from."""

    value: float
    why: str
    source: str


@cache
def rules() -> Mapping[str, Mapping[str, Threshold]]:
    """Return the thresholds by finding's code and name."""
    found: dict[str, dict[str, Threshold]] = {}
    for file in files("rules"):
        for code, rows in tomllib.loads(file.read_text("utf-8")).items():
            of = found.setdefault(code, {})
            for name, row in rows.items():
                of[name] = Threshold(float(row["value"]), row["why"], row["source"])
    return found


def threshold(code: str, name: str) -> float:
    """Return a finding's threshold, or else that of all findings."""
    of = rules()
    row = of.get(code, {}).get(name) or of[ALL][name]
    return row.value
