"""Debug files from debuginfod-find(1): whom it is asked for, and within which time."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import cast

import data
import pytest

from fusetools.host import debuginfod
from fusetools.record import manual_merge
from fusetools.record.merger import Opener

IDS = ("ab01", "cd02", "no-id", "../../x", "ef03")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A debuginfod-find that has a file of ab01 and of ef03, and sleeps for ee04."""
    path = tmp_path / "bin" / "debuginfod-find"
    path.parent.mkdir()
    path.write_text(
        f"#!/bin/sh\necho $* >>{tmp_path}/asked\ncase $2 in\n"
        f"ab01|ef03) touch {tmp_path}/$2; echo {tmp_path}/$2;;\n"
        "ee04) exec sleep 60;;\n*) exit 1;;\nesac\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    return path


def test_files_are_found_by_build_id(program: Path, tmp_path: Path) -> None:
    with debuginfod.debug_files(IDS) as found:
        assert found and (found.files, found.unasked) == (2, 0)
        links = {
            str(path.relative_to(found.folder)): path.resolve().name
            for path in found.folder.rglob("*.debug")
        }
    assert links == {
        "usr/lib/debug/.build-id/ab/01.debug": "ab01",
        "usr/lib/debug/.build-id/ef/03.debug": "ef03",
    }
    assert not found.folder.exists()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["debuginfo ab01", "debuginfo cd02", "debuginfo ef03"]


def test_a_server_that_is_slow_has_a_limit(program: Path) -> None:
    with debuginfod.debug_files(("ab01", "ee04", "ef03"), seconds=1.0) as found:
        assert found and (found.files, found.unasked) == (1, 2)


def test_build_ids_of_paths() -> None:
    place = debuginfod.debug_place("ab01" * 10)
    assert debuginfod.build_id_at(f"/{place}") == "ab01" * 10
    for other in (place, f"/proc/7/root/{place}", f"/{place}.x", "/lib/x.so.debug"):
        assert debuginfod.build_id_at(str(other)) is None


def test_merge_asks_for_the_debug_files_that_this_host_lacks(program: Path, tmp_path: Path) -> None:
    def absent(path: object) -> int:
        raise FileNotFoundError(str(path))

    opener = cast(Opener, absent)
    servers = debuginfod.Servers(str(program), 1.0)

    def opened(path: str, servers: debuginfod.Servers | None = servers) -> str:
        try:
            number = manual_merge._open(opener, servers, threading.Lock(), Path(path))
        except OSError:
            return ""
        with os.fdopen(number) as file:
            return Path(os.readlink(f"/proc/self/fd/{file.fileno()}")).name

    assert opened("/usr/lib/debug/.build-id/ab/01.debug") == "ab01"
    assert opened("/usr/lib/debug/.build-id/ab/01.debug", None) == ""
    for other in ("/lib/x.so", "/usr/lib/debug/.build-id/cd/02.debug"):
        assert opened(other) == ""
    assert (tmp_path / "asked").read_text().splitlines() == ["debuginfo ab01", "debuginfo cd02"]
    assert servers.unasked == 0
    assert opened("/usr/lib/debug/.build-id/ee/04.debug") == "" and servers.unasked == 1


def test_merge_warns_of_files_that_no_server_sent_in_time(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = debuginfod.Servers(str(program))
    servers.unasked = 2
    monkeypatch.setattr(debuginfod, "Servers", lambda _: servers)
    monkeypatch.setattr(manual_merge, "_host", lambda _: {"avoid": []})
    name = "kernels/6.1.0-56-amd64/recording/perf.data.zst"
    recording = data.unpack(name, tmp_path / "perf.data")
    info = manual_merge._merged([str(recording)], str(tmp_path / "merged.data"))
    assert "2 files" in info["warnings"][-1]


def test_nobody_is_asked_without_servers(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for urls in ("", " "):
        monkeypatch.setenv("DEBUGINFOD_URLS", urls)
        with debuginfod.debug_files(IDS) as found:
            assert found is None
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    program.unlink()
    monkeypatch.setenv("PATH", str(program.parent))
    with debuginfod.debug_files(IDS) as found:
        assert found is None
