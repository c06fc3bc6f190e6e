"""What a plan is made of: probes, events, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.errors import Error
from fusetools.host.words import is_word

RETURN = "__return"
DURATIONS = "durations"  # what is Missing where calls are counted, and not timed
NUMBER = "probe"  # the argument that tells the probes of a bundle apart


@dataclass(frozen=True)
class Probe:
    """An event that has to be made: a uprobe, or a kprobe.

    ``kind`` is "p" (entry) or "r" (return); ``place`` what tracefs takes ("/lib/x.so:0x12", or a
    kernel function); ``role`` as in the recording: entry, return, begin, sent, end, reply or
    inode;
    ``instances``: how many calls may be under way at once (kretprobes), 0: the kernel's default;
    ``bundle``: the event that it shares with others while they are recorded, where its ``number``
    tells it from them.
    """

    event: str  # "group:name"
    kind: str
    place: str
    layer: str
    function: str
    operation: str
    role: str
    address: int = 0
    arguments: tuple[tuple[str, str], ...] = ()
    instances: int = 0
    bundle: str = ""
    number: int = 0

    @property
    def in_kernel(self) -> bool:
        return not self.place.startswith("/")

    @property
    def recorded_as(self) -> str:
        """The event that perf records."""
        return self.bundle or self.event

    def definition(self) -> str:
        """The line for tracefs' kprobe_events, uprobe_events or dynamic_events. Error: it would
        not be what it says."""
        instances = self.instances or ""
        words = [f"{self.kind}{instances}:{self.recorded_as.replace(':', '/', 1)}", self.place]
        words += [f"{name}={value}" for name, value in self.arguments]
        for word in words:
            if not is_word(word):
                raise Error(f"cannot probe {self.function}", f"tracefs does not take {word!r}")
        if self.bundle:
            words.append(f"{NUMBER}=\\{self.number}:u16")  # a constant
        return " ".join(words)


@dataclass(frozen=True)
class Event:
    """An event that is recorded, of the kernel's own or of a Probe: by perf, or in an instance of
    ftrace (``ftrace``), which is cheaper and takes no stacks.

    ``stack``: how the stack of whoever it happens to is recorded: "fp" (by frame pointers), "dwarf"
    (the top of the user's is copied, and unwound at the recording's end), "" for none.
    ``workload``: only in the workload and its children, else wherever it happens. ``frequency``: a
    sample so often a second on each CPU that is not idle, not one for each time it happens.
    """

    name: str  # "system:name", or one that is perf's own
    filter: str = ""
    stack: str = ""
    workload: bool = False
    frequency: int = 0
    ftrace: bool = False
