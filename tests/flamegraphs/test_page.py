"""The HTML page in Chromium, compared with sums over the stacks themselves."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Callable

import pytest
from chromium import Page

from fusetools import flame

# ruff: noqa: RUF001 (the multiplication sign of the page)
keys = pytest.importorskip("selenium.webdriver.common.keys").Keys

# all 1000: main 900 (read 600: lookup 400, wait 200; write 300: lookup 100, itself 200), idle 100
STACKS = {
    "main;read;lookup": 400,
    "main;read;wait": 200,
    "main;write": 200,
    "main;write;lookup": 100,
    "idle": 100,
}
GRAPH = flame.Folded(STACKS, "us")
# Callees are side by side by name: idle first.
IDLE, READ_LOOKUP, READ_WAIT, WRITE = 0.05, 0.3, 0.6, 0.8


def through(stacks: dict[str, int], wanted: Callable[[str], bool]) -> int:
    """Return the weight of the stacks with a frame that matches."""
    return sum(w for name, w in stacks.items() if any(map(wanted, name.split(";"))))


def random_stacks(seed: int, nodes: int, depth: int = 40) -> dict[str, int]:
    """Return stacks with at least that many frames in their tree, few of them wide."""
    choice = random.Random(seed)
    words = ("lookup", "read", "getattr", "wait", "schedule", "open", "iterate<int>")
    names = [f"{a}_{b}" for a in ("vfs", "fuse", "cvmfs", "std", "do", "sys") for b in words]
    stacks: dict[str, int] = {}
    seen = 0
    path = ["main"]
    while seen < nodes:
        path = path[: max(1, len(path) - max(1, int(choice.expovariate(0.25))))]
        before = ";".join(path)
        while len(path) < depth and choice.random() < 0.85:
            path.append(choice.choice(names))
            # Frames that are new in most stacks; the test counts them exactly.
        stacks[";".join(path)] = int(choice.paretovariate(1.2) * 10)
        seen += len(path) - before.count(";") - 1
    return stacks


def count_frames(stacks: dict[str, int]) -> int:
    nodes: set[int] = set()
    for name in stacks:
        frames = name.split(";")
        nodes.update(hash(tuple(frames[:i])) for i in range(1, len(frames) + 1))
    return len(nodes)


def test_tooltip_tells_time_and_share(page: Page) -> None:
    page.open(flame.html(GRAPH, inverted=True))
    assert page.rows == 4
    assert page.point(0.5, 0) == "all\n1 ms"
    assert page.point(IDLE, 1) == "idle\n100 us, 10.00 % of all"
    assert page.point(WRITE, 2) == "write\n300 us, 30.00 % of all\nitself 200 us, 20.00 %"
    assert page.point(READ_LOOKUP, 3) == "lookup\n400 us, 40.00 % of all"
    assert page.point(IDLE, 2) == ""


def test_root_is_below_unless_inverted(page: Page) -> None:
    page.open(flame.html(GRAPH))
    assert page.point(0.5, 3).startswith("all\n")
    assert page.point(READ_LOOKUP, 0).startswith("lookup\n400 us")
    page.keys("i")
    assert page.hash == {"inverted": ["1"]}
    assert page.point(0.5, 0).startswith("all\n")
    page.press("inverted")
    assert page.hash == {}


def test_click_zooms_and_back_returns(page: Page) -> None:
    page.open(flame.html(GRAPH, inverted=True))
    page.click(WRITE, 2)
    assert page.point(0.01, 2).startswith("write\n")
    assert page.point(0.99, 2).startswith("write\n")
    assert page.point(0.01, 3) == "lookup\n100 us, 10.00 % of all, 33.33 % of what is shown"
    assert page.detail == "write · 300 us, 30.00 % of all · itself 200 us, 20.00 %"
    page.click(0.01, 3)
    zoomed = page.hash["zoom"]
    page.keys(keys.BACKSPACE)
    assert page.hash["zoom"] != zoomed
    page.driver.back()
    page.settle()
    assert page.hash["zoom"] == zoomed
    page.keys("0")
    assert page.hash == {}
    assert page.point(IDLE, 1).startswith("idle")


def test_keyboard_walks_and_zooms(page: Page) -> None:
    page.open(flame.html(GRAPH, inverted=True))
    page.keys(keys.ARROW_DOWN)
    assert page.detail == "all · 1 ms"
    page.keys(keys.ARROW_DOWN, keys.ARROW_DOWN)
    assert page.detail.startswith("read · 600 us")
    page.keys(keys.ARROW_RIGHT)
    assert page.detail.startswith("write · 300 us")
    page.keys(keys.ENTER, keys.ARROW_DOWN)
    assert page.detail.startswith("lookup · 100 us, 10.00 % of all, 33.33 % of what is shown")
    # Zoom out for a neighbour that is out of sight.
    page.keys(keys.ARROW_UP, keys.ARROW_LEFT)
    assert page.detail.startswith("read · 600 us")
    assert page.point(0.99, 2).startswith("write")
    page.keys(keys.ESCAPE)
    assert page.run("return document.getElementById('acts').hidden")


def test_flame_walks_upwards(page: Page) -> None:
    page.open(flame.html(GRAPH))
    page.keys(keys.ARROW_UP, keys.ARROW_UP)
    assert page.detail.startswith("main · 900 us")
    page.keys(keys.ARROW_DOWN)
    assert page.detail == "all · 1 ms"


def test_search_share_and_steps(page: Page) -> None:
    page.open(flame.html(GRAPH, inverted=True))
    plain = page.colour(READ_WAIT, 3)
    page.keys("/", "^(LOO|loo)k|write$")
    # write has a lookup below it, counted once.
    share = through(STACKS, lambda frame: frame in ("lookup", "write"))
    assert page.text("found") == f"2 matches, {share / 10:.2f} %"
    assert page.colour(READ_LOOKUP, 3) == (230, 0, 230)
    assert page.colour(WRITE, 2) == (230, 0, 230)
    faded = page.colour(READ_WAIT, 3)
    assert faded != plain and min(faded) > min(plain)
    page.keys(keys.ENTER)
    assert page.text("found").startswith("1 of 2 matches")
    assert page.detail.startswith("lookup · 400 us")
    page.keys(keys.ENTER)
    assert page.detail.startswith("write · 300 us")
    page.click(0.5, 0)
    page.keys("N")
    assert page.detail.startswith("lookup · 400 us")
    page.keys("n")
    assert page.detail.startswith("write · 300 us")
    page.keys(keys.ESCAPE, keys.ESCAPE)
    assert page.text("found") == ""
    assert page.hash == {}


def test_search_in_case_and_wrong(page: Page) -> None:
    page.open(flame.html(flame.Folded({"Read": 1, "read": 3})))
    page.run("dispatchEvent(new KeyboardEvent('keydown', { key: 'f', ctrlKey: true }))")
    page.keys("read")
    assert page.text("found") == "2 matches, 100.00 %"
    page.keys(keys.BACKSPACE * 4, "Read")
    assert page.text("found") == "1 match, 25.00 %"
    page.keys(keys.BACKSPACE * 4, "(")
    assert page.text("found") == "not a regular expression"
    page.keys(keys.BACKSPACE, "nothing")
    assert page.text("found") == "no match"


def test_narrow_matches_are_seen(page: Page) -> None:
    stacks = {f"a{i:05}": 1000 for i in range(2000)} | {"b;needle": 1}
    page.open(flame.html(flame.Folded(stacks), inverted=True), "search=needle")
    assert page.text("found") == "1 match, 0.00 %"
    seen = page.run(
        """const graph = document.getElementById("graph");
        const { data } = graph.getContext("2d").getImageData(0, 0, graph.width, graph.height);
        let n = 0;
        for (let i = 0; i < data.length; i += 4) n += data[i] > 200 && data[i + 1] < 128;
        return n;"""
    )
    assert 8 < seen < 40
    page.keys("n")
    assert page.detail.startswith("needle · 1 samples")
    assert page.point(0.5, 2).startswith("needle")


def test_reverse_merges_from_the_leaves(page: Page) -> None:
    page.open(flame.html(GRAPH, inverted=True))
    page.press("reversed")
    assert page.hash == {"reversed": ["1"]}
    # By name: idle 100, lookup 500 (read 400, write 100), wait 200, write 200
    assert page.point(0.05, 1).startswith("idle\n100 us")
    assert page.point(0.3, 1).startswith("lookup\n500 us")
    assert page.point(0.3, 2).startswith("read\n400 us")
    assert page.point(0.55, 2).startswith("write\n100 us")
    assert page.point(0.55, 3).startswith("main\n100 us")
    assert page.point(0.7, 1).startswith("wait\n200 us")
    assert page.point(0.9, 1).startswith("write\n200 us")
    page.open(flame.html(GRAPH, inverted=True, reversed=True))
    assert page.point(0.3, 1).startswith("lookup\n500 us")


def test_sandwich_counts_recursion_once(page: Page) -> None:
    stacks = {"a;f;g;f;h": 40, "a;f": 10, "b;f;g": 30, "c": 20}
    page.open(flame.html(flame.Folded(stacks), inverted=True))
    page.keys(keys.ARROW_DOWN, keys.ARROW_DOWN, keys.ARROW_DOWN)
    assert page.detail.startswith("f · 50 samples")
    page.press("sandwich")
    assert page.hash == {"sandwich": ["f"]}
    # a and b above, f, then g 70, f 40, h 40 below
    assert page.rows == 5
    assert page.point(0.3, 0).startswith("a\n50 samples")
    assert page.point(0.8, 0).startswith("b\n30 samples")
    assert page.point(0.5, 1).startswith("f\n80 samples, 80.00 % of all")
    assert page.point(0.3, 2).startswith("g\n70 samples")
    assert page.point(0.3, 3).startswith("f\n40 samples")
    assert page.point(0.3, 4).startswith("h\n40 samples")
    # Each side zooms alone.
    page.click(0.8, 0)
    assert page.point(0.01, 0).startswith("b\n30 samples")
    assert page.point(0.3, 2).startswith("g\n70 samples")
    page.keys(keys.ARROW_DOWN)
    assert page.detail.startswith("f · 80 samples")
    page.keys("i")
    assert page.point(0.01, 4).startswith("b\n")
    assert page.point(0.3, 2).startswith("g\n70 samples")
    page.driver.find_element("css selector", "#filters button").click()
    page.settle()
    assert page.hash == {"inverted": ["0"]}


def test_focus_and_hide(page: Page) -> None:
    page.open(flame.html(GRAPH, inverted=True))
    page.click(WRITE, 2)
    page.keys("f")
    assert page.hash == {"focus": ["write"]}
    assert page.point(0.5, 0) == "all\n300 us, 30.00 % of all"
    assert page.point(0.01, 1).startswith("main\n300 us")
    assert page.point(0.5, 2).startswith("write\n300 us")
    page.keys(keys.ESCAPE, keys.ESCAPE)
    assert page.hash == {}
    # Without read and write both lookups come together.
    page.click(0.3, 2)
    page.press("hide")
    page.click(0.99, 2)
    page.keys("h")
    assert page.hash == {"hide": ["read", "write"]}
    assert page.point(0.3, 2).startswith("lookup\n500 us")
    assert page.point(0.7, 2).startswith("wait\n200 us")
    assert page.point(0.9, 1) == "main\n900 us, 90.00 % of all\nitself 200 us, 20.00 %"
    assert [chip.text for chip in page.driver.find_elements("css selector", "#filters button")] == [
        "hidden: read ×",
        "hidden: write ×",
    ]
    assert page.point(0.9, 2) == ""


@pytest.mark.parametrize("seed", range(3))
def test_trees_hold_the_stacks(page: Page, seed: int) -> None:
    """Any graph, hidden, focused, sandwiched or inverted, shows the shares of the stacks."""
    stacks = random_stacks(seed, 300, depth=8)
    total = sum(stacks.values())
    frame = "fuse_lookup"
    page.open(flame.html(flame.Folded(stacks), inverted=True), f"sandwich={frame}")
    expected = through(stacks, lambda name: name == frame)
    assert page.detail.startswith(f"{frame} · {expected:,} samples")
    page.open(flame.html(flame.Folded(stacks)), f"focus={frame}")
    assert page.detail.startswith(f"all · {expected:,} samples")
    page.open(flame.html(flame.Folded(stacks)), f"hide={frame}&reversed=1&search=^{frame}$")
    assert page.text("found") == "no match"
    assert page.detail == f"all · {total:,} samples"
    page.open(flame.html(flame.Folded(stacks)), "reversed=1&search=_wait$")
    expected = through(stacks, lambda name: name.endswith("_wait"))
    assert page.text("found").endswith(f" matches, {100 * expected / total:.2f} %")


def test_difference_is_red_and_blue(page: Page) -> None:
    before = flame.Folded({"a;more": 100, "a;less": 300, "a;same": 200, "a;gone": 50}, "us")
    after = flame.Folded({"a;more": 200, "a;less": 100, "a;same": 200, "a;new": 100}, "us")
    page.open(flame.html(flame.diff(before, after), inverted=True))
    # less 100, more 200, new 100, same 200 of 600; the removed stack has no width.
    less, more, new, same = (page.colour(x, 2) for x in (0.1, 0.3, 0.6, 0.9))
    assert less[2] > less[0] + 40
    assert more[0] > more[2] + 40
    assert new[0] - new[2] > more[0] - more[2]
    assert max(same) - min(same) < 8
    assert page.point(0.3, 2) == (
        "more\n200 us, 33.33 % of all\nbefore 100 us, after 200 us: +100 us (× 2.00)"
    )
    assert page.point(0.6, 2).endswith("before 0 ns, after 100 us: +100 us (new)")
    page.press("width")
    assert page.hash == {"width": ["before"]}
    assert page.point(0.01, 2).startswith("gone\n50 us, 7.69 % of all")
    assert page.point(0.01, 2).endswith("before 50 us, after 0 ns: -50 us (gone)")
    page.keys("w", "m")
    assert page.hash == {"normalise": ["1"]}
    # 650 us before are scaled to 600 after.
    assert page.point(0.3, 2).endswith("before 92.3 us, after 200 us: +108 us (× 2.17)")
    same = page.colour(0.9, 2)
    assert same[0] > same[2]
    page.open(flame.html(flame.diff(before, after, normalise=True), inverted=True))
    assert page.point(0.3, 2).endswith("(× 2.17)")
    page.keys("m")
    assert page.point(0.3, 2).endswith("(× 2.00)")


def test_colour_by_kind(page: Page) -> None:
    kinds = flame.Kinds({"main": "user", "read": "kernel"}.get, ("user", "kernel", "unused"))
    page.open(flame.html(GRAPH, inverted=True, kinds=kinds))
    assert page.text("legend").split("\n") == ["user", "kernel", "other"]
    orange, green, grey = page.colour(0.9, 1), page.colour(0.3, 2), page.colour(0.9, 2)
    assert orange[0] > orange[1] > orange[2]
    assert green[1] > green[0] and green[1] > green[2]
    assert max(grey) == min(grey)
    assert page.point(0.3, 2).startswith("read (kernel)\n")
    page.keys("c")
    assert page.hash == {"colour": ["name"]}
    assert page.text("legend") == ""
    assert page.colour(0.9, 2) != grey


def test_annotations_are_kinds(page: Page) -> None:
    graph = flame.Folded({"main;read_[k]": 1, "main;made_[j]": 1})
    page.open(flame.html(graph, inverted=True, kinds=flame.ANNOTATIONS))
    assert page.point(0.3, 2).startswith("made (JIT)\n")
    assert page.point(0.8, 2).startswith("read (kernel)\n")


def test_dark_follows_the_system_and_is_toggled(page: Page) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    page.open(flame.html(GRAPH, inverted=True))
    assert page.run(paper) == "rgb(255, 255, 255)"
    light = page.colour(0.3, 3)
    page.media(prefers_color_scheme="dark")
    page.settle()
    assert page.run(paper) == "rgb(21, 23, 27)"
    assert page.colour(IDLE, 3) == (21, 23, 27)
    assert sum(page.colour(0.3, 3)) < sum(light)
    page.keys("d")
    assert page.run(paper) == "rgb(255, 255, 255)"
    assert page.hash == {"theme": ["light"]}
    page.media()
    page.settle()
    page.press("theme")
    assert page.run(paper) == "rgb(21, 23, 27)"
    assert page.hash == {"theme": ["dark"]}


def test_text_has_contrast(page: Page) -> None:
    """Every label, muted text and button is readable: WCAG's contrast of 4.5 to 1."""
    kinds = flame.Kinds(lambda frame: frame, tuple("abcdefghi"))
    graph = flame.Folded(dict.fromkeys("abcdefghi", 1))
    difference = flame.diff(graph, flame.Folded({letter: i for i, letter in enumerate("abcdef")}))
    pages = [flame.html(graph, kinds=kinds), flame.html(graph), flame.html(difference)]
    for theme in ("light", "dark"):
        for text in pages:
            # Return the texts and the fill below each, as they are drawn.
            text = text.replace(
                "<script>\n",
                """<script>
                window.drawn = [];
                const { fillRect, fillText } = CanvasRenderingContext2D.prototype;
                const fills = [];
                CanvasRenderingContext2D.prototype.fillRect = function (x, y, w, h) {
                  fills.push([x, y, w, h, this.fillStyle]);
                  fillRect.call(this, x, y, w, h);
                };
                CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                  const within = ([l, t, w, h]) => x >= l && x < l + w && y >= t && y < t + h;
                  window.drawn.push([this.fillStyle, fills.findLast(within)[4]]);
                  fillText.call(this, text, x, y);
                };
                """,
                1,
            )
            page.open(text, f"theme={theme}&search=[a-e]")
            drawn = page.run("return window.drawn")
            assert len(drawn) >= 5
            for ink, fill in drawn:
                assert contrast(ink, fill) >= 4.5, (theme, ink, fill)
        for selector in ("#title", "#detail", "#found", "#subtitle", "#reset", "#search"):
            ink, paper = page.run(
                """const style = getComputedStyle(document.querySelector(arguments[0]));
                const body = getComputedStyle(document.body).backgroundColor;
                const own = style.backgroundColor;
                return [style.color, own === "rgba(0, 0, 0, 0)" ? body : own];""",
                selector,
            )
            assert contrast(ink, paper) >= 4.5, (theme, selector)


def contrast(a: str, b: str) -> float:
    def luminance(colour: str) -> float:
        if colour.startswith("#"):
            parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        else:
            parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
        r, g, b = (
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
            for v in (part / 255 for part in parts)
        )
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_address_restores_the_view(page: Page) -> None:
    text = flame.html(GRAPH)
    page.open(text)
    page.keys("/", "wait|idle", keys.ENTER, "i" * 0)
    page.keys(keys.TAB * 3, "i", "d")
    page.click(READ_WAIT, 2)
    state, detail, found = page.hash, page.detail, page.text("found")
    assert set(state) == {"search", "inverted", "theme", "zoom"}
    fragment = page.driver.current_url.split("#")[1]
    page.driver.get("about:blank")
    page.open(text, fragment)
    assert page.hash == state
    assert page.detail == detail
    assert page.text("found").endswith(found.split(" of ")[-1])


@pytest.mark.parametrize(
    "fragment",
    ["zoom=99999", "zoom=-1&colour=x&theme=y", "sandwich=nobody&focus=&hide=x", "search=(", "%%%"],
)
def test_any_address_opens(page: Page, fragment: str) -> None:
    page.open(flame.html(GRAPH), fragment)
    page.keys("0")
    page.settle()


def test_hostile_names_are_text(page: Page) -> None:
    evil = "</script><img src=x onerror=\"document.title='evil'\">"
    names = [
        evil,
        "<!--",
        "{{js}}",
        "日本語の長い名前",
        "\u202eabc",
        "a&amp;b",
        "__proto__",
        "😀" * 100,
        "long" * 1000,
        "' + alert(1) + '",
    ]
    graph = flame.Folded({flame.stack([name, "constructor"]): 1 for name in names})
    kinds = flame.Kinds(lambda frame: "<b>kind</b>", ("<b>kind</b>",))
    page.open(flame.html(graph, title=f"</title>{evil}", subtitle=evil, inverted=True, kinds=kinds))
    assert page.driver.title == f"</title>{evil}"
    assert page.text("title") == f"</title>{evil}"
    assert page.run("return document.images.length") == 0
    shown = {
        page.point((i + 0.5) / len(names), 1).split("\n")[0].removesuffix(" (<b>kind</b>)")
        for i in range(len(names))
    }
    names[names.index("long" * 1000)] = ("long" * 75)[:-1] + "…"
    assert shown == {name.replace(";", ":") for name in names}
    page.click(0.5 / len(names), 1)
    page.keys("s")
    page.keys("f")
    page.keys("h")
    assert page.run("return document.images.length") == 0
    assert page.driver.title == f"</title>{evil}"


def test_help_lists_every_key(page: Page) -> None:
    page.open(flame.html(GRAPH))
    page.keys("?")
    assert page.run("return document.getElementById('help').open")
    listed = page.run(
        "return [...document.querySelectorAll('dialog kbd')].map((key) => key.textContent)"
    )
    page.keys("i")
    assert page.hash == {}
    page.keys(keys.ESCAPE)
    assert not page.run("return document.getElementById('help').open")
    handled = "".join(re.findall(r"const actions = \{(.*?)\n\};", flame.html(GRAPH), re.S))
    known = set(re.findall(r'^  "?([^":\s]+)"?:', handled, re.M))
    arrows = {"ArrowUp": "↑", "ArrowDown": "↓", "ArrowLeft": "←", "ArrowRight": "→"}
    known = {{"Escape": "Esc", **arrows}.get(key, key) for key in known}
    assert known - {"?"} == set(listed)


def test_narrow_window(page: Page) -> None:
    page.resize(400, 700)
    kinds = flame.Kinds(lambda frame: "kernel", ("kernel", "library", "scheduler"))
    difference = flame.diff(flame.Folded(random_stacks(5, 500)), flame.Folded({"main": 5}))
    difference = flame.Diff(
        {name: (before, before + after) for name, (before, after) in difference.stacks.items()}
    )
    page.open(flame.html(difference, title="A title that is as long as titles may be", kinds=kinds))
    page.keys("/", "fuse")
    page.keys(keys.ENTER)
    width, height = page.run(
        "return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    assert (width, height) == (400, 700)
    outside = page.run(
        """return [...document.querySelectorAll("button, input, #detail, #found")]
        .filter((e) => e.offsetParent && !e.closest("dialog"))
        .map((e) => [e.id, e.getBoundingClientRect()])
        .filter(([, box]) => box.left < 0 || box.right > 400 || box.bottom > 700)
        .map(([id]) => id);"""
    )
    assert outside == []
    assert page.run("return document.getElementById('scroll').clientHeight") > 200


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="no pdftotext here")
def test_printed(page: Page, tmp_path: Path) -> None:
    page.open(flame.html(GRAPH, title="On paper", subtitle="of a test"), "theme=dark&search=wait")
    (tmp_path / "out.pdf").write_bytes(page.pdf())
    text = subprocess.run(
        ["pdftotext", "-layout", str(tmp_path / "out.pdf"), "-"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for expected in ("On paper", "of a test", "all", "main", "lookup", "write", "20.00 %"):
        assert expected in text
    assert "Reset" not in text
    picture = subprocess.run(
        ["pdftoppm", "-r", "50", str(tmp_path / "out.pdf")], capture_output=True, check=True
    ).stdout
    header, _, _, pixels = picture.split(b"\n", 3)
    assert header == b"P6"
    # The SVG is printed on white, however dark the window is, with matches in color.
    triples = [pixels[i : i + 3] for i in range(0, len(pixels) - 2, 3)]
    assert triples.count(b"\xff\xff\xff") > len(triples) / 2
    assert sum(p[0] > 180 and p[1] < 80 and p[2] > 180 for p in triples) > 50
    # The window is unchanged.
    assert page.run("return document.getElementById('print').childElementCount") == 0


def test_tall_graph_scrolls_and_prints(page: Page) -> None:
    deep = ";".join(f"f{i}" for i in range(4096))
    page.open(flame.html(flame.Folded({deep: 1})))
    assert page.rows == 4097
    assert page.point(0.5, 4096).startswith("all")
    assert page.point(0.5, 0).startswith("f4095")
    page.keys("/", "^f2000$", keys.ENTER)
    assert page.detail.startswith("f2000 ")
    top, height = page.run(
        "const s = document.getElementById('scroll'); return [s.scrollTop, s.clientHeight]"
    )
    assert top < (4096 - 2001) * 18 < top + height
    assert page.pdf().startswith(b"%PDF")


def test_too_many_frames_to_turn_are_cut(page: Page) -> None:
    # Every frame has its own weight here: inverted, the graph has 3 million nodes and more.
    names = [f"f{k}" for k in range(2500)]
    stacks = {";".join([r, *names[:k]]): 1 for r in "abc" for k in range(2500)}
    page.open(flame.html(flame.Folded(stacks)), "reversed=1")
    assert "stacks are cut after" in page.text("filters")


def test_only_visible_frames_are_painted(page: Page) -> None:
    """At rest and while zooming, at most as many of 100,000 frames are drawn as fit into the
    window."""
    stacks = random_stacks(2, 120_000, depth=10)
    frames = count_frames(stacks)
    assert frames >= 100_000
    page.resize(400, 300)
    page.media(prefers_reduced_motion="no-preference")
    page.open(flame.html(flame.Folded(stacks)))
    page.run(
        """const real = CanvasRenderingContext2D.prototype.fillRect;
        window.painted = [];
        CanvasRenderingContext2D.prototype.fillRect = function (...box) {
          if (box[3] > 100) painted.push(0);  // the paper, first of all
          else painted[painted.length - 1]++;
          return real.apply(this, box);
        };"""
    )
    for key in ["ArrowUp", "Enter"] * 5 + ["Backspace"] * 4 + ["0"]:
        page.driver.execute_async_script(
            """const [key, done] = arguments;
            let frames = 0;
            dispatchEvent(new KeyboardEvent("keydown", { key }));
            requestAnimationFrame(function next() {
              if (++frames < 15) requestAnimationFrame(next);
              else done();
            });""",
            key,
        )
    painted = page.run("return painted")
    assert len(painted) >= 15
    # A row has room for a frame per 1.5 pixels, and for the narrower ones between two of them.
    room = (300 / 18 + 2) * 400 / 1.5 * 2
    assert 100 < max(painted) < room < frames / 8


# Stacks in time; their weights add up to those of STACKS.
ORDER = [
    ("main;read;lookup", 100),
    ("main;write", 50),
    ("main;read;lookup", 300),
    ("main;read;wait", 200),
    ("idle", 100),
    ("main;write;lookup", 100),
    ("main;write", 150),
]


def test_time_order_merges_neighbours_only(page: Page) -> None:
    page.open(flame.html(flame.Folded(STACKS, "us", ORDER), inverted=True))
    assert page.point(IDLE, 1).startswith("idle\n")
    page.keys("t")
    assert page.hash == {"ordered": ["1"]}
    assert page.point(0.3, 1) == "main\n650 us, 65.00 % of all"
    assert page.point(0.05, 2) == "read\n100 us, 10.00 % of all"
    assert page.point(0.12, 2) == "write\n50 us, 5.00 % of all"
    assert page.point(0.12, 3) == ""
    assert page.point(0.3, 2) == "read\n500 us, 50.00 % of all"
    assert page.point(0.3, 3) == "lookup\n300 us, 30.00 % of all"
    assert page.point(0.7, 1) == "idle\n100 us, 10.00 % of all"
    # A frame's own time is where it was, also after its callees.
    assert page.point(0.9, 2) == "write\n250 us, 25.00 % of all\nitself 150 us, 15.00 %"
    assert page.point(0.8, 3) == "lookup\n100 us, 10.00 % of all"
    assert page.point(0.9, 3) == ""
    assert page.text("filters").startswith("time order: the stacks of each thread")
    assert "only" not in page.text("filters")
    # Other views leave it; what it cannot be combined with is disabled.
    assert page.run("return document.getElementById('reversed').disabled")
    page.keys("/", "^write$")
    assert page.text("found") == "2 matches, 30.00 %"
    page.keys(keys.ESCAPE)
    page.click(0.3, 2)
    assert page.point(0.5, 3).startswith("lookup\n300 us")
    page.press("focus")
    assert page.point(0.5, 2) == "read\n600 us, 60.00 % of all"
    page.click(0.5, 2)
    page.keys("h")
    assert page.hash["hide"] == ["read"]
    page.press("ordered")
    assert "ordered" not in page.hash


def test_time_order_hides_and_focuses(page: Page) -> None:
    page.open(flame.html(flame.Folded(STACKS, "us", ORDER), inverted=True), "ordered=1&hide=read")
    assert page.point(0.05, 2) == "lookup\n100 us, 10.00 % of all"
    assert page.point(0.55, 2) == "wait\n200 us, 20.00 % of all"
    page.open(flame.html(flame.Folded(STACKS, "us", ORDER), inverted=True), "ordered=1&focus=write")
    # 50, then 250 of write: neighbours are merged, all of it is 300.
    assert page.point(0.5, 0) == "all\n300 us, 30.00 % of all"
    assert page.point(0.5, 2).startswith("write\n300 us")


def test_time_order_says_how_much_it_holds(page: Page) -> None:
    page.open(flame.html(flame.Folded(STACKS, "us", ORDER[:3]), inverted=True), "ordered=1")
    assert "the first 45.00 % only: there is too much" in page.text("filters")
    assert page.point(0.5, 0) == "all\n450 us, 45.00 % of all"
    page.open(flame.html(GRAPH), "ordered=1")
    assert not page.run("return document.getElementById('ordered').offsetHeight")
    assert page.point(IDLE, 2).startswith("idle\n")
