"""Changes that why advises, by the daemon's program."""

from __future__ import annotations

import pytest

from fusetools.answers.fixes import KINDS, advice, daemons
from fusetools.session import TracedMount


def test_tables() -> None:
    tables = {name: dict(table) for name, table in daemons().items()}
    assert {*tables["any"]} == {*KINDS}
    for name, table in tables.items():
        assert name == "any" or table.pop("tried"), name
        assert table and {*table} <= {*KINDS}, name


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        (TracedMount("/mnt", program="mergerfs"), "cache.entry=1"),
        (TracedMount("/mnt", program="cvmfs2", fs="cvmfs"), "CVMFS_KCACHE_TIMEOUT"),
        # A program takes libfuse's options about caches only if it uses the high-level API.
        (TracedMount("/mnt", program="x", fs="libfuse_highlevel", parses=True), "-o entry_timeout"),
        (TracedMount("/mnt", program="x", fs="libfuse", parses=True), "let the kernel cache"),
        (TracedMount("/mnt", program="x", fs="libfuse_highlevel"), "let the kernel cache"),
        (TracedMount("/mnt", program="any"), "let the kernel cache"),
        (None, "let the kernel cache"),
    ],
)
def test_the_most_special_words(mount: TracedMount | None, words: str) -> None:
    assert words in advice("timeouts", mount)
