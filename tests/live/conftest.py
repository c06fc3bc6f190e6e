"""Fixtures of the tests that mount the sample file system on this host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable

import mounts
import pytest
from hanging import EMULATED, Hang, Hanging
from left import RUN, nothing_left
from sample import BUILD, ROOT, Mounter, SampleMount, SlowServer, make_tree
from script import needs_perf


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run one live test at a time, of all test runs on this host; beside it one that records
    nothing."""
    with mounts.alone(records=request.node.get_closest_marker("unrecorded") is None):
        yield


@pytest.fixture(scope="session")
def samples() -> Path:
    """The directory of the built sample programs."""
    if os.geteuid() != 0:
        pytest.skip("mounting the sample file system needs root")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this host has no /dev/fuse")
    if not EMULATED:  # a guest has those of its host
        subprocess.run(["make", "-s", "-C", ROOT / "samples" / "fs"], check=True)
    return BUILD


@pytest.fixture
def leaves_nothing(alone: None, samples: Path) -> Iterator[None]:
    """Check afterwards that recordings have left nothing on this host."""
    needs_perf()
    RUN.mkdir(exist_ok=True)
    yield
    nothing_left()


@pytest.fixture
def leaves_no_file(tmp_path: Path) -> Iterator[None]:
    """Check afterwards that recordings have left no file beside themselves.

    Request this fixture before leaves_nothing, which waits until recordings have ended.
    """
    yield
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="session")
def sample_tree(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that all mounts serve and only read."""
    return make_tree(tmp_path_factory.mktemp("served") / "tree")


@pytest.fixture
def sample_mount(sample_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounter]:
    """Mount the sample file system, without kernel caching unless requested."""
    made: list[SampleMount] = []

    def mount(
        *options: str,
        kernel_cache: float = 0,
        delay: tuple[str, ...] = (),
        error: tuple[str, ...] = (),
        stripped: bool = False,
        as_shipped: bool = False,
        before: Sequence[str] = (),
        own_tree: bool = False,
    ) -> SampleMount:
        arguments = ["--kernel-cache", str(kernel_cache), *options]
        arguments += [f"--delay={value}" for value in delay]
        arguments += [f"--error={value}" for value in error]
        build = "stripped" if stripped else "as-shipped" if as_shipped else "with-symbols"
        # Use a directory with a short path: the path of a socket has at most 107 bytes.
        tree = None if own_tree else sample_tree
        sample = SampleMount(tmp_path_factory.mktemp("fs"), arguments, build, before, tree)
        made.append(sample)
        sample.wait()
        return sample

    yield mount
    for sample in made:
        sample.clean()


@pytest.fixture
def slow_server(tmp_path: Path) -> Iterator[Callable[..., SlowServer]]:
    """Start the server from which the sample file system downloads, with these options."""
    servers: list[SlowServer] = []

    def start(*options: str) -> SlowServer:
        servers.append(SlowServer(tmp_path / f"server-{len(servers)}.log", *options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def hangfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if built := os.environ.get("FUSETOOLS_HANGFS"):
        return Path(built)
    return mounts.build_hangfs(tmp_path_factory.mktemp("hangfs"))


@pytest.fixture
def hang(hangfs: Path, tmp_path: Path) -> Iterator[Hang]:
    """hang(pattern, argument) makes such a mount."""
    made: list[Hanging] = []

    def make(*arguments: str) -> Hanging:
        made.append(Hanging(hangfs, tmp_path / f"mount{len(made)}", *arguments))
        return made[-1]

    yield make
    for mount in reversed(made):
        mount.close()
