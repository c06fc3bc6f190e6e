"""Each file system is mounted, recorded and unmounted once; the tests look at what came of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import catalogue
import mounts
import pytest
import recorded


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of `of` runs for each file system; where it is known to fail, that is expected."""
    if "of" not in metafunc.fixturenames:
        return
    wrong: dict[str, str] = getattr(metafunc.function, "wrong", {})
    values = [
        pytest.param(
            name,
            marks=[pytest.mark.xfail(strict=True, raises=AssertionError, reason=wrong[name])]
            if name in wrong
            else [],
        )
        for name, fs in catalogue.FILE_SYSTEMS.items()
        if getattr(metafunc.function, "only", lambda _: True)(fs)
    ]
    metafunc.parametrize("of", values, indirect=True, scope="session")


@pytest.fixture(scope="session")
def of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[recorded.Recorded]:
    """What was recorded of that file system, and what others saw of the same time."""
    fs = catalogue.FILE_SYSTEMS[request.param]
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting file systems needs root and /dev/fuse")
    if reason := catalogue.missing(("perf", "strace", *fs.needs)):
        pytest.skip(f"{fs}: {reason}")
    catalogue.make("all", *fs.builds)
    folder = tmp_path_factory.mktemp(fs.name)
    with mounts.alone():
        result = recorded.record(fs, folder)
    yield result
    shutil.rmtree(folder)
