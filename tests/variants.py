"""Variants of tests that `make test-variants` runs, as one of each runs in `make test`."""

from __future__ import annotations

from typing import Any

import pytest


def variants(*values: object) -> list[Any]:
    """Return further values of a test's parameter."""
    return [pytest.param(value, marks=pytest.mark.variant) for value in values]
