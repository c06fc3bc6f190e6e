"""The function_graph recorder: trace-cmd, and the settings of ftrace that it changes."""

from __future__ import annotations

import signal
from fnmatch import fnmatchcase
from pathlib import Path

from fusetools.reasons import Code, Reason
from fusetools.record import tracecmd
from fusetools.record.job import Job
from fusetools.record.tracecmd import TraceCmd


class Graph:
    """function_graph, in the top instance of ftrace (``root``).

    ``output``: the trace.dat; ``lost``: events that were dropped.
    """

    def __init__(self, job: Job, root: Path, directory: Path) -> None:
        self.job, self.root, self.directory = job, root, directory
        self.lost = 0
        self._program = TraceCmd(root, directory)
        self.output = self._program.output

    def start(self, free: int) -> None:
        """Start trace-cmd, paused; ftrace's settings are noted first. ``free``: bytes of disk."""
        job, program = self.job, self._program
        assert job.facts.trace_cmd is not None
        tracecmd.check_free(self.root, job.facts.ftrace_users)
        job.state.ftrace = tracecmd.settings(self.root)
        job.lock.write()
        size = tracecmd.buffer_size(job.facts.cpus, free)
        program.buffers = size * job.facts.cpus
        name = self.output.name
        argv = tracecmd.command_line(
            job.facts.trace_cmd, name, job.plan.graph, job.plan.clock, size
        )
        # If this process is killed, trace-cmd still switches the tracer off.
        job.run(program, argv, self.directory, signal.SIGINT)
        program.wait_until_on()
        traced = program.functions()
        for pattern in job.plan.graph:
            left_out = pattern.startswith("!")
            if not left_out and not any(fnmatchcase(name, pattern) for name in traced):
                subject = {"pattern": pattern}
                job.missing.append(Reason(Code.FUNCTION_UNTRACED, subject, layer="kernel"))

    def resume(self) -> None:
        """Record from here on."""
        self._program.resume()

    def pause(self) -> None:
        """Record nothing from here on. Before it is started, ftrace is others'."""
        if self._program.process is not None:
            self._program.pause()

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of what trace-cmd has written, and the bytes of disk that are needed to
        keep it."""
        written = sum(path.stat().st_size for path in self.directory.glob("trace.dat*"))
        return written, tracecmd.room(written, self._program.buffers)

    def stop(self) -> None:
        """Stop trace-cmd, and restore ftrace's settings."""
        job, program = self.job, self._program
        if program.process is not None:
            if not program.stop():
                why = program.complaint() or "trace-cmd was killed"
                job.outcome.warnings.append(f"function_graph was not recorded whole: {why}")
                job.outcome.failed = True
            self.lost = program.lost
        if job.state.ftrace:
            tracecmd.restore(self.root, job.state.ftrace)
            job.state.ftrace = {}
