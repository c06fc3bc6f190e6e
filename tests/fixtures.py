"""Types of the fixtures in conftest.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from click.testing import Result

if TYPE_CHECKING:
    from fake_core import FakeCore
    from selenium.webdriver import Chrome

    Driver = Chrome
    Core = TypeVar("Core", bound=FakeCore)
else:  # what needs neither Selenium nor tests/unit
    Driver = object
    Core = TypeVar("Core")


class Invoke(Protocol):
    """run("hist", "lookup") -> click's result; anything but an exit is raised."""

    def __call__(self, *args: str) -> Result: ...


class Fake(Protocol):
    """fake(core, …): commands in an empty folder with recordings a.data …, answered by these."""

    def __call__(self, *cores: Core) -> Core: ...
