"""Waiting for signals in a process that may be stopped meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FUSETOOLS = str(Path(sys.prefix) / "bin" / "fusetools")
CODE = """
import signal, sys
from fusetools.record.signals import SIGNALS, arrived
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
print("ready", flush=True)
for _ in range(20):
    came = arrived(0.05)
    print(came and signal.Signals(came.si_signo).name, flush=True)
"""


def test_a_stopped_process_gets_no_signal() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(4):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.02)
        assert set(process.stdout.read().split()) == {"None"}
    assert process.returncode == 0


def test_a_signal_is_told_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        words = process.stdout.read().split()
    assert len(words) == 20 and words.count("SIGTERM") == 1 and words.count("None") == 19


@pytest.mark.parametrize("program", [[sys.executable, "-m", "fusetools"], [FUSETOOLS]])
def test_an_interrupt_during_the_imports_leaves_no_traceback(
    program: list[str], tmp_path: Path
) -> None:
    """While the program's first imports are read."""
    code = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
    (tmp_path / "click.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*program, "--help"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
