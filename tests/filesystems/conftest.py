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
    if "of" in metafunc.fixturenames:
        metafunc.parametrize("of", catalogue.FILE_SYSTEMS, indirect=True, scope="session")


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
    catalogue.make("all")
    folder = tmp_path_factory.mktemp(fs.name)
    with mounts.alone():
        yield_me = recorded.record(fs, folder)
    yield yield_me
    shutil.rmtree(folder)
