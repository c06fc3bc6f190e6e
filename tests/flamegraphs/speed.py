"""How fast a large flame graph opens and zooms in Chromium: printed by `make bench`, not tested."""

from __future__ import annotations

import statistics

from chromium import Page
from test_page import random_stacks

from fusetools import flame


def test_opening(page: Page) -> None:
    text = flame.html(flame.Folded(random_stacks(1, 205_000)))
    opened = []
    for _ in range(5):
        page.open(text)
        opened.append(page.run("return performance.getEntriesByName('drawn')[0].startTime"))
    print(f"\nflame graph of 200,000 frames: opens in {statistics.median(opened):.0f} ms")


def test_zooming(page: Page) -> None:
    page.media(prefers_reduced_motion="no-preference")
    page.open(flame.html(flame.Folded(random_stacks(2, 103_000))))
    times: list[float] = []
    for key in ["ArrowUp", "Enter"] * 5 + ["Backspace"] * 4 + ["0"]:
        times += page.driver.execute_async_script(
            """const [key, done] = arguments, times = [];
            let last = performance.now();
            dispatchEvent(new KeyboardEvent("keydown", { key }));
            requestAnimationFrame(function next(now) {
              times.push(performance.now() - last);
              last = performance.now();
              if (times.length < 15) requestAnimationFrame(next);
              else done(times.slice(1));
            });""",
            key,
        )
    print(
        f"\nflame graph of 100,000 frames: zooms at {statistics.median(times):.1f} ms a frame, "
        f"95 % within {statistics.quantiles(times, n=20)[-1]:.1f} ms"
    )
