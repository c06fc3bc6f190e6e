"""A page in headless Chromium, viewed and driven as a person does."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fixtures import Driver

ROW = 18


class Page:
    """The page of a flame graph. Rows are counted from the top of the graph; across is 0 to 1."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver = driver
        self.folder = folder
        self.resize(1200, 800)

    def resize(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def media(self, **features: str) -> None:
        """Emulate media features; animations run only where a test needs them."""
        features.setdefault("prefers_reduced_motion", "reduce")
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]},
        )

    def open(self, text: str, hash: str = "") -> None:
        """Load a page and wait until it is drawn.

        Assert that it has no errors and requests nothing else.
        """
        path = self.folder / f"{time.monotonic_ns()}.html"
        path.write_text(text, encoding="utf-8")
        self.driver.get(f"{path.as_uri()}#{hash}")
        self.wait("return performance.getEntriesByName('drawn').length")
        # "rendering": advice about reading pixels back, as only the tests do.
        log = [entry for entry in self.driver.get_log("browser") if entry["source"] != "rendering"]
        assert log == []
        assert self.run("return performance.getEntriesByType('resource').length") == 0

    def run(self, script: str, *args: object) -> Any:
        return self.driver.execute_script(script, *args)

    def wait(self, script: str) -> None:
        end = time.monotonic() + 20
        while not self.run(script):
            assert time.monotonic() < end, f"never: {script}"
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait until the requested view is drawn."""
        self.driver.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        )

    def keys(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()
        self.settle()

    def place(self, across: float, row: int) -> tuple[int, int]:
        """Return the pixel of the window there, scrolled into view."""
        x, y, width = self.run(
            """const scroll = document.getElementById("scroll"), y = arguments[0];
            if (y < scroll.scrollTop || y > scroll.scrollTop + scroll.clientHeight - 20)
              scroll.scrollTop = y - 40;
            const box = scroll.getBoundingClientRect();
            return [box.left, box.top - scroll.scrollTop + y, scroll.clientWidth];""",
            row * ROW + ROW // 2,
        )
        return int(x + across * width), int(y)

    def point(self, across: float, row: int) -> str:
        """Return the tooltip there; "" without a tooltip."""
        self._mouse(across, row, click=False)
        return self.text("tip")

    def click(self, across: float, row: int) -> None:
        self._mouse(across, row, click=True)
        self.settle()

    def _mouse(self, across: float, row: int, click: bool) -> None:
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        x, y = self.place(across, row)
        self.settle()  # scrolling hides the tooltip
        actions = ActionBuilder(self.driver, duration=0)
        actions.pointer_action.move_to_location(x, y)
        if click:
            actions.pointer_action.click()
        actions.perform()

    def press(self, id: str) -> None:
        self.driver.find_element("id", id).click()
        self.settle()

    def text(self, id: str) -> str:
        text: str = self.driver.find_element("id", id).text
        return text

    @property
    def detail(self) -> str:
        return self.text("detail")

    @property
    def hash(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.driver.current_url).fragment)

    @property
    def rows(self) -> int:
        height: int = self.run("return document.getElementById('spacer').offsetHeight")
        return height // ROW

    def colour(self, across: float, row: int) -> tuple[int, int, int]:
        """Return the color of the graph there, at the bottom of the row, where no letter is."""
        self.settle()
        x, y = self.place(across, row)
        self.settle()
        r, g, b, _ = self.run(
            """const graph = document.getElementById("graph"), box = graph.getBoundingClientRect();
            const at = [arguments[0] - box.left, arguments[1] - box.top];
            return [...graph.getContext("2d").getImageData(...at, 1, 1).data];""",
            x,
            y + ROW // 2 - 3,
        )
        return r, g, b

    def pdf(self) -> bytes:
        printed = self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
        return base64.b64decode(printed["data"])
