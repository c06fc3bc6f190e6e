"""The SVG: its frames as kept in tests/golden, its sums, search and zoom."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import golden
import pytest
from chromium import Page
from fixtures import Driver

from fusetools import flame
from fusetools.flame.folded import Graph

GRAPH = flame.Folded(
    {
        "main;read;lookup_[k]": 400,
        "main;read;wait_[k]": 200,
        "main;write": 200,
        "main;write!;x": 100,
        "main;write;lookup_[k]": 100,
        "# idle;a 12": 100,
        "<&>\"';é": 1,
    },
    "us",
)
KINDS = flame.Kinds({"read": "user", "lookup_[k]": "kernel"}.get, ("kernel", "user"))
SVG = "{http://www.w3.org/2000/svg}"


def drawn(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return the title and the rectangle of each frame."""
    root = ET.fromstring(text)
    frames = next(e for e in root.iter(f"{SVG}svg") if e.get("id") == "frames")
    return [(g.findtext(f"{SVG}title") or "", next(g.iter(f"{SVG}rect")).attrib) for g in frames]


def listing(text: str) -> str:
    """Return the project's part of an SVG, a line each: without inferno's script and style."""
    root = ET.fromstring(text)
    texts = [e.text for e in root.findall(f"{SVG}text") if e.text and e.text.strip()]
    lines = [f"size {root.get('width')} x {root.get('height')}", *texts]
    for title, rect in sorted(drawn(text), key=lambda frame: (float(frame[1]["y"]), frame[1]["x"])):
        lines.append(f"{rect['y']:>4} {rect['x']:>9} {rect['width']:>9} {rect['fill']:16} {title}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "name, graph, options",
    [
        ("plain", GRAPH, {}),
        ("inverted", GRAPH, {"inverted": True, "title": "Of <this>", "subtitle": "& that"}),
        ("reversed", GRAPH, {"reversed": True, "palette": "aqua"}),
        ("kinds", GRAPH, {"kinds": KINDS, "palette": "java", "width": 900, "min_width": 11}),
        ("diff", flame.diff(GRAPH, flame.Folded({"main;read": 9, "main": 1}, "us")), {}),
    ],
)
def test_golden(name: str, graph: Graph, options: dict[str, Any]) -> None:
    golden.check(f"flame-{name}.txt", listing(flame.svg(graph, **options)))


def test_counts_are_the_sums() -> None:
    graph = flame.Folded({"main;a": 1200, "main;b;a": 30, "main;b": 4, "idle": 5})
    titles = [title for title, _ in drawn(flame.svg(graph))]
    assert sorted(titles) == [
        "a (1,200 samples, 96.85%)",
        "a (30 samples, 2.42%)",
        "all (1,239 samples, 100%)",
        "b (34 samples, 2.74%)",
        "idle (5 samples, 0.40%)",
        "main (1,234 samples, 99.60%)",
    ]


def test_the_legend_is_of_what_is_drawn() -> None:
    kinds = flame.Kinds({"main": "user", "read": "kernel"}.get, ("user", "unused", "kernel"))
    text = flame.svg(flame.Folded({"main;read": 1}), subtitle="1 s", kinds=kinds)
    assert ">1 s · user orange, kernel blue<" in text
    assert "·" not in flame.svg(flame.Folded({"a": 1}), subtitle="1 s", kinds=kinds)


def test_callees_are_side_by_side() -> None:
    """In sorted lines, `write!` is between `write` and `write;lookup`: it would split that
    frame."""
    titles = [title for title, _ in drawn(flame.svg(GRAPH))]
    assert titles.count("write (300 us, 27.25%)") == 1


def test_fractions_are_drawn_in_the_next_smaller_unit() -> None:
    titles = [title for title, _ in drawn(flame.svg(flame.Folded({"a": 0.25, "b": 0.75}, "s")))]
    assert "b (750 ms, 75.00%)" in titles and "a (250 ms, 25.00%)" in titles
    titles = [title for title, _ in drawn(flame.svg(flame.Folded({"a": 0.25, "b": 0.75})))]
    assert "b (750 samples / 1000, 75.00%)" in titles


def test_difference_is_in_per_cent_of_after() -> None:
    before, after = flame.Folded({"a": 50, "b": 50}), flame.Folded({"a": 150, "b": 50})
    titles = dict(drawn(flame.svg(flame.diff(before, after))))
    a = titles["a (150 samples, 75.00%; +50.00%)"]
    assert a["fill"] == "rgb(255,100,100)"
    assert titles["b (50 samples, 25.00%; 0.00%)"]["fill"] == "rgb(250,250,250)"
    titles = dict(drawn(flame.svg(flame.diff(before, after, normalise=True))))
    assert titles["a (150 samples, 75.00%; +25.00%)"]["fill"] == "rgb(255,100,100)"
    assert titles["b (50 samples, 25.00%; -25.00%)"]["fill"] == "rgb(100,100,255)"


def test_difference_with_fractions() -> None:
    graph = flame.diff(flame.Folded({"a": 0.5}, "s"), flame.Folded({"a": 1.5, "b": 0.5}, "s"))
    titles = [title for title, _ in drawn(flame.svg(graph))]
    assert "a (1,500 ms, 75.00%; +50.00%)" in titles


def test_largest_weights() -> None:
    before, after = flame.Folded({"a": 1 << 54}), flame.Folded({"a": 1 << 55, "b": 0.5})
    titles = dict(drawn(flame.svg(flame.diff(before, after))))
    assert titles[f"a ({1 << 55:,} samples, 100.00%; +50.00%)"]["fill"] == "rgb(255,100,100)"


def test_colours_are_the_same_each_time() -> None:
    assert flame.svg(GRAPH) == flame.svg(GRAPH)


@pytest.mark.parametrize("palette", flame.palettes())
def test_palettes(palette: str) -> None:
    assert drawn(flame.svg(GRAPH, palette=palette))


@pytest.mark.parametrize(
    "graph, options, message",
    [
        (flame.Folded({}), {}, "input: no stacks in it"),
        (flame.Folded({"a": 0}), {}, "input: all counts are 0"),
        (flame.Diff({"a": (1, 0)}), {}, "nothing is left after"),
        (GRAPH, {"palette": "pink"}, "no palette pink"),
        (GRAPH, {"min_width": -1}, "the least width"),
    ],
)
def test_errors(graph: Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(flame.Error, match=message):
        flame.svg(graph, **options)


@pytest.mark.parametrize("depth", [4096])
def test_hostile_shapes(depth: int) -> None:
    deep = ";".join(["a"] * depth)
    assert len(drawn(flame.svg(flame.Folded({deep: 1 << 55})))) == depth + 1
    names = [";" * 100, "\u0000\u202e", "]]>", "_[k]", " ", "a\r\nb", "\U0001f600" * 3]
    for name in names:
        assert drawn(flame.svg(flame.Folded({name: 1})))


def test_searched_and_zoomed_in_a_browser(driver: Driver, tmp_path: Path) -> None:
    path = Path(tmp_path / "out.svg")
    path.write_text(flame.svg(GRAPH), encoding="utf-8")
    driver.get(f"{path.as_uri()}?s=lookup")
    assert driver.find_element("id", "matched").text == "Matched: 45.4%"

    def frame(name: str) -> Any:
        return driver.execute_script(
            """return [...document.querySelectorAll("#frames > g")].find(
                (g) => g.querySelector("title").textContent.startsWith(arguments[0]))""",
            name,
        )

    frame("write (").click()
    assert "hide" in frame("read (").get_attribute("class")
    width = frame("write (").find_element("tag name", "rect").get_attribute("width")
    assert float(width.rstrip("%")) > 99.9
    driver.find_element("id", "unzoom").click()
    assert "hide" not in (frame("read (").get_attribute("class") or "")
    assert [entry for entry in driver.get_log("browser") if entry["source"] != "rendering"] == []


@pytest.mark.parametrize(
    ("theme", "paper", "ink"),
    [
        ("light", "rgb(238, 238, 238)", "rgb(0, 0, 0)"),
        ("dark", "rgb(21, 23, 27)", "rgb(232, 234, 237)"),
    ],
)
def test_dark_where_the_browser_is(page: Page, theme: str, paper: str, ink: str) -> None:
    """The text of frames stays black, which is readable on their colours."""
    page.media(prefers_color_scheme=theme)
    path = page.folder / "graph.svg"
    path.write_text(flame.svg(GRAPH))
    page.driver.get(path.as_uri())
    colours = page.run(
        """const style = (place) => getComputedStyle(document.querySelector(place));
        return [style("#background stop").stopColor,
                style("#title").fill, style("#frames text").fill]"""
    )
    assert colours == [paper, ink, "rgb(0, 0, 0)"]
