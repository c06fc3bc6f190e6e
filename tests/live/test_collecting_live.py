"""docs/collecting/fusetools-job: a batch job's recording becomes rows of the fleet's tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mounts import HANGS
from recording import environment, printed
from sample import ROOT, Mounter

pytest.importorskip("duckdb")
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]

JOB = ROOT / "docs" / "collecting" / "fusetools-job"
TIMES = 37
# Without systemd: a service is a process that says when it has started, and its end a signal to it.
SYSTEMD_RUN = f"""#!{sys.executable}
import os, socket, subprocess, sys
words = sys.argv[sys.argv.index("fusetools"):]
spool = os.environ["SPOOL"]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
    notified.bind(spool + "/notify")
    more = {{"NOTIFY_SOCKET": spool + "/notify"}}
    log = open(spool + "/log", "wb")
    service = subprocess.Popen(
        words, env={{**os.environ, **more}}, stdout=log, stderr=log, start_new_session=True
    )
    open(spool + "/pid", "w").write(str(service.pid))
    notified.settimeout(60)
    assert notified.recv(99) == b"READY=1"
"""
SYSTEMCTL = """#!/bin/sh
[ "$2" = fusetools-job-4711 ] || exit 5
kill -TERM $(cat "$SPOOL/pid")
while kill -0 $(cat "$SPOOL/pid"); do sleep 0.1; done
"""


def test_a_batch_job(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    programs, spool, tables = (tmp_path / name for name in ("bin", "spool", "tables"))
    for folder in (programs, spool):
        folder.mkdir()
    fusetools = f'#!/bin/sh\nexec {sys.executable} -m fusetools "$@"\n'
    for name, text in (
        ("fusetools", fusetools),
        ("systemd-run", SYSTEMD_RUN),
        ("systemctl", SYSTEMCTL),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    # The script sets PATH, as Slurm's prologs have none.
    script = programs / "fusetools-job"
    script.write_text(JOB.read_text().replace("\nPATH=", f"\nPATH={programs}:", 1))
    settings = environment(
        TABLES=str(tables),
        SPOOL=str(spool),
        LABELS="--label rack=r07",
        RECORD=f"--detail latency --mount {mount.path}",
    )

    def job(*words: str) -> str:
        done = subprocess.run(
            ["sh", script, *words], capture_output=True, text=True, env=settings, timeout=HANGS
        )
        assert done.returncode == 0
        return done.stderr

    assert job("start", "4711") == ""
    work = f"for n in $(seq {TIMES}); do stat -f {mount.path}/dir-01; done"
    subprocess.run(["sh", "-c", work], check=True, capture_output=True)
    job("stop", "4711")
    for by, label in (("batch", "4711"), ("rack", "r07")):
        question = ["fleet", str(tables), "count", "statfs", "--by", by]
        (group,) = json.loads(printed(*question, "--json"))["groups"]
        assert (group["label"], group["requests"]) == (label, TIMES)
    assert not list(spool.glob("*.data"))
    assert "nothing was recorded" in job("stop", "4711")
    assert "no job's number" in job("start", "../4711")
