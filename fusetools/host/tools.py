"""perf and trace-cmd: their versions and options, and whether perf can record."""

from __future__ import annotations

import re

from fusetools.host.facts import Tool
from fusetools.host.files import Answer, Files

# Options that fusetools uses if they exist.
PERF_OPTIONS = (
    "--call-graph",
    "--cgroup",
    "--clockid",
    "--control",
    "--delay",
    "--exclude-perf",
    "--filter",
    "--max-size",
    "--mmap-flush",
    "--no-bpf-event",
    "--no-buildid",
    "--no-buildid-cache",
    "--sample-identifier",
    "--switch-events",
    "--synth",
    "--tail-synthesize",
    "--threads",
    "-D",
    "-k",
    "-z",
)
TRACE_CMD_OPTIONS = ("-C", "--compression", "--file-version", "--max-graph-depth", "--no-filter")

# A command that records every CPU briefly and discards the data.
TRIAL = ("-q", "-N", "-B", "-a", "-e", "sched:sched_switch", "-o", "/dev/null", "--", "true")


class Tools:
    """Starts the commands; their output is read after everything else.

    ``tracefs``: it exists. Without it, no command that would mount it may run. ``trial``: run perf;
    else assume that it can record.
    """

    def __init__(self, files: Files, tracefs: bool, trial: bool) -> None:
        self._tried = trial or not tracefs
        self._paths = {name: files.which(name) for name in ("perf", "trace-cmd")}
        self._answers: dict[str, Answer] = {}
        if self._paths["perf"]:
            self._answers["usage"] = files.start("perf", "record", "-h")
            self._answers["build"] = files.start("perf", "version", "--build-options")
            self._answers["version"] = files.start("perf", "--version")
        if self._paths["trace-cmd"]:
            self._answers["trace-cmd"] = files.start("trace-cmd", "--version")
            if tracefs:
                self._answers["trace-cmd help"] = files.start("trace-cmd", "record", "-h")
        if self._paths["perf"] and tracefs and trial:
            known = known_options(self._answers["usage"].get()[1], PERF_OPTIONS)
            # Without this option perf takes a second to exit.
            option = [name for name in ("--no-bpf-event",) if name in known]
            self._answers["trial"] = files.start("perf", "record", *option, *TRIAL)

    @property
    def pids(self) -> set[int]:
        return {answer.pid for answer in self._answers.values() if answer.pid is not None}

    def perf(self) -> tuple[Tool | None, bool, str]:
        """Return the tool, whether it could record a tracepoint on all CPUs, and the reason why
        not."""
        path = self._paths["perf"]
        if path is None:
            return None, False, "perf is not installed"
        status, output = self._answers["version"].get()
        version = re.search(r"version\s+(\S+)", output)
        if status != 0 or not version:
            # Debian's and Ubuntu's perf is a script that looks for the running kernel's perf.
            return None, False, _first_line(output) or "perf does not run"
        usage = self._answers["usage"].get()[1]
        options = known_options(usage, PERF_OPTIONS)
        if not options:
            return None, False, f"perf record -h: {_first_line(usage)}"
        _, build = self._answers["build"].get()
        status, output = int(self._tried), "tracefs is not readable"
        if "trial" in self._answers:
            status, output = self._answers["trial"].get()
        traceevent = _built_with(build, "libtraceevent")
        if traceevent is None:
            # perf before 6.2 has libtraceevent without reporting it; a perf that recorded a
            # tracepoint has it.
            traceevent = status == 0 or None
        zstd = _built_with(build, "zstd")
        tool = Tool(path, version[1], options, traceevent, zstd)
        return tool, status == 0, "" if status == 0 else _why(output)

    def trace_cmd(self) -> Tool | None:
        path = self._paths["trace-cmd"]
        if path is None:
            return None
        _, output = self._answers["trace-cmd"].get()
        version = re.search(r"version\s+(\S+)", output)
        if not version:
            return None
        usage = (
            self._answers["trace-cmd help"].get()[1] if "trace-cmd help" in self._answers else ""
        )
        return Tool(path, version[1], known_options(usage, TRACE_CMD_OPTIONS))


def known_options(text: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of ``wanted`` that a usage text lists at the beginning of a line."""
    listed: set[str] = set()
    for line in text.splitlines():
        head = re.match(r"\s+(-\w)?,?\s*(--[\w-]+)?", line)
        if head:
            listed.update(option for option in head.groups() if option)
    return tuple(option for option in wanted if option in listed)


def _built_with(options: str, library: str) -> bool | None:
    """Parse the output of `perf version --build-options`; None if the item is not reported."""
    built = re.search(rf"{library}: \[\s*(\w+)", options)
    return built[1].lower() == "on" if built else None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _why(text: str) -> str:
    """Return the line of perf's message that names the cause."""
    for pattern in (
        r"libtraceevent is necessary.*",
        r"Access to performance.*limited",
        r"No permission.*",
        r"Error:\s*(\S.*)",
    ):
        if match := re.search(pattern, text):
            return match[match.lastindex or 0].strip()
    return _first_line(text) or "perf record failed and printed nothing"
