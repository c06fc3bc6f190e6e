"""Fixtures for tests in a virtual machine.

`--kernels all`: those of Debian's suites; or names separated by commas, also of Ubuntu's suites and
kernels (`focal,noble-6.14`) if the machine's apt sources have them; default: bookworm.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import debs
import pytest
import vm


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kernels", default="bookworm", help="suites to take kernels of, or all of Debian's"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kernel" not in metafunc.fixturenames:
        return
    # A plain `pytest` reads this file too late for its option.
    names: str = metafunc.config.getoption("--kernels", default="bookworm")
    suites = debs.DEBIAN if names == "all" else names.split(",")
    metafunc.parametrize("kernel", suites, indirect=True, scope="session")


@pytest.fixture(scope="session", autouse=True)
def guests() -> Iterator[None]:
    """Guests that wait for a command end with the tests."""
    yield
    vm.close()


@pytest.fixture(scope="session")
def all_kernels(request: pytest.FixtureRequest) -> bool:
    """Return whether the tests run on all kernels, where they may take long."""
    return bool(request.config.getoption("--kernels", default="") == "all")


@pytest.fixture
def campaign(all_kernels: bool) -> None:
    """Run only on all kernels: on one kernel other tests prove the same."""
    if not all_kernels:
        pytest.skip("make test-kernels runs it")


@pytest.fixture(scope="session")
def kernel(request: pytest.FixtureRequest) -> vm.Kernel:
    if platform.machine() != "x86_64":
        pytest.skip("the guest runs the host's programs on x86_64 kernels")
    if not shutil.which(qemu := vm.QEMU["amd64"]):
        pytest.skip(f"{qemu} is not installed: tools/install.sh installs it")
    try:
        return vm.Kernel.fetch(request.param)
    except debs.Unavailable as error:
        pytest.skip(f"no kernel of {request.param}: {error}")


@pytest.fixture
def guest(kernel: vm.Kernel, tmp_path: Path) -> vm.Guest:
    """Run a command in a guest with tmp_path shared; its exit status must be 0."""
    return vm.guest(kernel, tmp_path)


@pytest.fixture(scope="session")
def tools(kernel: vm.Kernel) -> Path:
    """A folder for PATH with perf and trace-cmd of the kernel's suite."""
    try:
        return kernel.tools()
    except debs.Unavailable as error:
        pytest.skip(f"no perf and trace-cmd of {kernel.suite}: {error}")
