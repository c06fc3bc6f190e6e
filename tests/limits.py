"""A second limit behind pytest-timeout's, for a test that its signal does not end.

pytest-timeout ends a test once and lets it clean up. The clean-up may hang, and so may code that no
signal interrupts. Then this limit ends the process without Python's help. Under xdist the test has
failed, and another process runs the remaining tests.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

CLEANING = 240.0  # seconds that a test may use to clean up after its limit or failure
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # before pytest captures it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    mark = item.get_closest_marker("timeout")
    limit = mark.args[0] if mark else item.config.getoption("timeout", None)
    if limit is None:
        limit = item.config.getini("timeout")
    if float(limit or 0):
        _end_after(item, float(limit) + CLEANING)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    # pytest has cancelled the limit, as a person might look at the failure in a debugger.
    if isinstance(node, pytest.Item):
        _end_after(node, CLEANING)


def _end_after(item: pytest.Item, seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[STDERR])
