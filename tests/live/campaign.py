"""Record troubles again and again, and compare the findings with them: `make test-why`.

Usage: python tests/live/campaign.py ROUNDS [NAME …] (NAME: of troubles.py; A+B: both at once)

It keeps the recordings with wrong findings in target/why, and exits with 1 if there is one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import mounts
import troubles
from troubles import MINOR, PAIRS, QUIET, TROUBLES

import fusetools
from fusetools.cli.options import LOST
from fusetools.reasons import Code
from fusetools.render.text.why import first
from fusetools.results.why import Why

KEPT = Path("target/why")
DAEMON, CPU = "faultfs", Code.CPU_TAKEN.value


@contextlib.contextmanager
def preferred() -> Iterator[None]:
    """Run the troubles before all other programs of the machine, which would be findings, too.

    Daemons and workloads inherit the real-time policy; the recorder keeps its own."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def record(program: Path, name: str, output: Path) -> fusetools.Recording:
    """Record a trouble, or several at once: "A+B"."""
    made = {**{name: make for name, (make, _) in {**TROUBLES, **MINOR}.items()}, **QUIET}
    wanted = [made[part] for part in name.split("+")]
    with (
        preferred(),
        tempfile.TemporaryDirectory() as folder,
        troubles.stages(Path(folder), program, wanted) as of,
    ):
        command = [sys.executable, "-m", "fusetools", "record", "-o", str(output)]
        for path in of.mounts:
            command += ["--mount", str(path)]
        command += [*of.options, "--", *of.command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, LOST), done.stderr
    return fusetools.open(output)


def judged(result: Why, name: str) -> tuple[str, ...]:
    """Return the codes of all findings if they are wrong, else ().

    A single trouble's code must come first. All codes of several troubles must be present. Without
    troubles there must be no finding. A finding about the recorder is not wrong, nor that programs
    of others took the CPU: they may have.
    """
    known = {**TROUBLES, **MINOR}
    wanted = [known[part][1] for part in name.split("+") if part in known]
    own = {caller.comm for finding in result.findings for caller in finding.callers} | {DAEMON}
    codes = [
        f.reason.code.value
        for f in result.findings
        if f.reason.code != Code.RECORDING_DISTURBS
        and (f.reason.code.value != CPU or CPU in wanted or f.reason.subject["comm"] in own)
    ]
    right = {*wanted} <= {*codes} if len(wanted) > 1 or name in MINOR else codes[:1] == wanted
    return () if right else (*codes, "instead of", *wanted)


def main() -> int:
    rounds = int(sys.argv[1])
    names = sys.argv[2:] or [*TROUBLES, *MINOR, *PAIRS, *QUIET]
    KEPT.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        program = troubles.build(Path(folder))
        for name in names:
            for number in range(rounds):
                output = KEPT / f"{name}-{number}.data"
                with mounts.alone():
                    recording = record(program, name, output)
                result = recording.why()
                found = [f"{f.reason.code.value} {f.share:.2f}" for f in result.findings]
                right = not judged(result, name)
                wrong += not right
                print(f"{'ok   ' if right else 'WRONG'} {name}: {', '.join(found) or 'nothing'}")
                print("".join(f"      {line}\n" for line in first(result)), end="", flush=True)
                if right:
                    output.unlink()
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
