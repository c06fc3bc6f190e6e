"""The site: it is built without a warning, and each of its links leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs/site"


class Page(HTMLParser):
    """A page's links and anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "built"
    done = subprocess.run(
        [sys.executable, SITE / "build.py", folder], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_each_link_leads_somewhere_without_the_network(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html") if "gallery" not in path.parts}
    assert len(pages) > 60
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:  # a page of others: only for who clicks on it
                assert parts.scheme in ("https", "data"), (path, link)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            found = target.is_file()
            if found and parts.fragment and target in pages:
                found = unquote(parts.fragment) in pages[target].anchors
            if not found:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    loads = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["']?https?:""")
    assert not [path for path in pages if loads.search(path.read_text())]


def test_each_man_page_and_each_problem_has_a_page(site: Path) -> None:
    manual = {path.stem for path in (ROOT / "fusetools/man").glob("*.1")}
    assert manual <= {path.stem for path in (site / "man").glob("*.html")}
    text = (ROOT / "tests/live/troubles.py").read_text()
    listed = text[text.index("TROUBLES:") : text.index("QUIET:")]  # with MINOR
    troubles = set(re.findall(r'^    "(\w+)": \(', listed, re.M))
    problems = {path.stem for path in (site / "problems").glob("*.html")}
    assert problems == {path.stem for path in (SITE / "problems").glob("*.txt")}
    assert problems <= troubles and len(problems) >= 9
