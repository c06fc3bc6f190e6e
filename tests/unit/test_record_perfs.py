"""The perf recorders: whether one that ended has ended the recording."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fusetools.record.perf import Overwriting, Perf, Refused
from fusetools.record.perfs import Perfs


class _Perf(Perf):
    """A perf that is a shell's line."""

    def __init__(self, directory: Path, program: str) -> None:
        directory.mkdir()
        super().__init__(directory)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", program], stdout=log, start_new_session=True
            )


def perfs(folder: Path, first: str, second: str) -> Perfs:
    job: Any = None
    made = Perfs(job, folder / "raw", Perf)
    made.first, made.second = _Perf(folder / "1", first), _Perf(folder / "2", second)
    return made


RUNS = "exec sleep 60"


@pytest.mark.parametrize(
    ("first", "second", "ended"),
    [
        (RUNS, RUNS, False),
        (RUNS, "true", False),  # the daemons, its only processes, have ended
        (RUNS, "false", True),
        (RUNS, "echo '[ perf record: perf size limit reached (1 KB), stopping session ]'", True),
        ("true", RUNS, True),
    ],
)
def test_a_recording_goes_on_when_its_daemons_end(
    tmp_path: Path, first: str, second: str, ended: bool
) -> None:
    made = perfs(tmp_path, first, second)
    try:
        for perf, program in zip(made.all, (first, second)):
            if program != RUNS:
                assert perf.process is not None
                perf.process.wait()
        assert made.ended is ended
        assert made.stop() is not ended
    finally:
        made.kill()
        made.close()


def test_overwriting_buffers_are_lost_when_perf_ends() -> None:
    assert Overwriting.complete is False


PAGES = "Permission error mapping pages."


def test_the_reason_of_perf_is_no_warning(tmp_path: Path) -> None:
    """As perf 6.1 writes it where it lacks CAP_SYSLOG and CAP_IPC_LOCK."""
    said = """
WARNING: Kernel address maps (/proc/{kallsyms,modules}) are restricted,
check /proc/sys/kernel/kptr_restrict and /proc/sys/kernel/perf_event_paranoid.

Samples in kernel functions may not be resolved if a suitable vmlinux
file is not found in the buildid cache or in the vmlinux path.

Samples in kernel modules won't be resolved at all.

If some relocation was applied (e.g. kexec) symbols may be misresolved
even with a suitable vmlinux or kallsyms file.
"""
    for name, more, reason in (("warns", "", ""), ("refuses", f"{PAGES}\nConsider less.\n", PAGES)):
        (tmp_path / "said").write_text(said + more)
        perf = _Perf(tmp_path / name, f"cat {tmp_path}/said")
        assert perf.process is not None
        perf.process.wait()
        assert perf.complaint() == reason


# Like perf record: open the events, start the command after "--", end it at SIGINT.
PERF = """
while [ "$1" != -- ]; do shift; done
shift
end() {
  kill $command
  wait $command
  echo "[ perf record: Captured and wrote 1 MB ]"
  kill -TERM $$
}
trap end INT
"$@" &
command=$!
echo "began $command"
while :; do wait; done
"""


def test_a_perf_without_commands_begins_and_ends_by_signals(tmp_path: Path) -> None:
    perf = Perf(tmp_path, steered=False)
    try:
        perf.start(["sh", "-c", PERF, "sh", "record"], lambda: None, tmp_path)
        perf.enable()
        command = int(re.findall(r"began (\d+)", perf.said())[0])
        assert Path(f"/proc/{command}").exists()
        perf.pause()  # nothing happens, and nothing is waited for
        assert not perf.tell("disable") and not perf.owes
        assert perf.stop()
        perf.let_go()
        assert perf.process is not None and perf.process.returncode == -signal.SIGTERM
        assert not Path(f"/proc/{command}").exists()
    finally:
        perf.kill()
        perf.close()


def test_a_perf_that_cannot_open_its_events_is_refused(tmp_path: Path) -> None:
    perf = Perf(tmp_path, steered=False)
    try:
        perf.start(["sh", "-c", "echo no such event; exit 129"], lambda: None, tmp_path)
        with pytest.raises(Refused, match="no such event"):
            perf.enable()
    finally:
        perf.close()
