"""A page in headless Chromium for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import Page
from fixtures import Driver


@pytest.fixture
def page(driver: Driver, tmp_path: Path) -> Page:
    page = Page(driver, tmp_path)
    page.media()
    return page
