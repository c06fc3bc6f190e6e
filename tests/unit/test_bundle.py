"""Lists of the files that were read, for CernVM-FS."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from fixtures import Invoke

from fusetools.render.bundle import render
from fusetools.results.bundle import Bundle

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"


def bundle(*files: str) -> Bundle:
    return Bundle("/cvmfs/x", files, 0, 0, None)  # type: ignore[arg-type]


def test_a_bundle_lists_the_files_of_the_exported_requests_in_order(
    run: Invoke, tmp_path: Path
) -> None:
    out, rows = tmp_path / ".cvmfsbundle-file-000", tmp_path / "requests.csv"
    result = run("export", "-i", str(DEMO), "-o", str(out))
    assert result.exit_code == 0
    run("export", "-i", str(DEMO), "-o", str(rows))
    begun: dict[str, int] = {}
    waited = 0
    for row in csv.DictReader(rows.read_text().splitlines()):
        good = row["fate"] == "matched" and row["error"] == "0"
        if row["operation"] in ("open", "read") and good:
            path, begin = f"/{row['path']}", int(row["begin_ns"])
            begun[path] = min(begun.get(path, begin), begin)
            waited += int(row["duration_ns"]) if row["waits"] == "true" else 0
    data = json.loads(out.read_text())
    assert data.pop("dependencies") == sorted(begun, key=lambda path: begun[path])
    assert data == {"name": "CVMFS_BUNDLE", "version": "1.0.0", "encoding": "UTF-8"}
    assert len(begun) > 10
    assert f"{len(begun)} files of /mnt/sample" in result.stderr
    assert f"waited {waited / 1e6:.1f} ms" in result.stderr


def test_a_specification_has_a_path_in_each_line(run: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "spec"
    run("export", "-i", str(DEMO), "--format", "shrinkwrap", "-o", str(out))
    printed = run("export", "-i", str(DEMO), "--format", "cvmfsbundle", "-o", "-").stdout
    assert out.read_text().splitlines() == json.loads(printed)["dependencies"]


@pytest.mark.parametrize(
    ("name", "bundled", "specified"),
    [
        ("/a b", True, True),
        ("/a*", True, False),
        ("/a ", True, False),
        ("/a\nb", True, False),
        ("/a\x1b[2J", True, False),
        ("/a\ufffd", False, False),  # it was no UTF-8
    ],
)
def test_a_name_that_a_format_cannot_hold_is_left_out(
    name: str, bundled: bool, specified: bool
) -> None:
    text, left_out = render(bundle("/x", name), "cvmfsbundle")
    assert (json.loads(text)["dependencies"], left_out) == (
        ["/x", name][: 1 + bundled],
        not bundled,
    )
    text, left_out = render(bundle("/x", name), "shrinkwrap")
    assert (text.split("\n")[:-1], left_out) == (["/x", name][: 1 + specified], not specified)


def test_a_recording_without_reads_has_no_bundle(run: Invoke, tmp_path: Path) -> None:
    result = run("export", "-i", str(DEMO), "--to", "1ns", "--format", "shrinkwrap", "-o", "-")
    assert result.exit_code == 1
    assert "no path of a file" in result.stderr
    assert not result.stdout
