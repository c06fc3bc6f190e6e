"""Parts of a plan: probes, events, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusetools.core import OPCODES
from fusetools.errors import Error
from fusetools.host.words import is_word
from fusetools.plan.filters import EVERY, Filter, all_of

RETURN = "__return"
NUMBER = "probe"  # the argument that identifies a probe in a bundle


@dataclass(frozen=True)
class Probe:
    """An event to create: a uprobe or a kprobe.

    ``kind`` is "p" (entry) or "r" (return); ``place`` as tracefs takes it ("/lib/x.so:0x12", or a
    kernel function); ``role``: one of session.ROLES; ``instances``: maximum number of concurrent
    calls (kretprobes), 0: the kernel's default;
    ``bundle``: the event that it shares with other probes during recording, in which ``number``
    identifies it; ``layout``: (name, type) of that event's arguments: those of all its probes.
    If the argument NUMBER is the opcode, the function serves all operations.
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
    layout: tuple[tuple[str, str], ...] = ()

    @property
    def in_kernel(self) -> bool:
        return not self.place.startswith("/")

    @property
    def recorded_as(self) -> str:
        """The event that perf records."""
        return self.bundle or self.event

    @property
    def by_opcode(self) -> bool:
        """Return whether an argument shows the operation of each call."""
        return NUMBER in dict(self.arguments)

    def apart(self) -> tuple[Probe, ...]:
        """Return the probe as the recording shows it: one for each operation that it serves."""
        if not self.by_opcode:
            return (self,)
        return tuple(
            replace(
                self,
                event=f"{self.event}_{operation}",
                function=f"{self.function}:{operation}",
                operation=operation,
                bundle=self.recorded_as,
                number=opcode,
            )
            for opcode, operation in OPCODES.items()
        )

    @property
    def padding(self) -> list[str]:
        """The arguments of its event that it does not have itself."""
        own = dict(self.arguments)
        return [name for name, _ in self.layout if name not in own]

    def definition(self) -> str:
        """Return the line for tracefs' kprobe_events, uprobe_events or dynamic_events. Error:
        tracefs would misread it."""
        instances = self.instances or ""
        own = dict(self.arguments)
        layout = self.layout or tuple(dict.fromkeys(own, "").items())
        place = [f"{self.kind}{instances}:{self.recorded_as.replace(':', '/', 1)}", self.place]
        values = [f"{name}={value}" for name, value in (*own.items(), *layout)]
        for word in place + values:
            if not is_word(word):
                raise Error(f"cannot probe {self.function}", f"tracefs does not take {word!r}")
        values = [f"{name}={own.get(name, constant(0, kind))}" for name, kind in layout]
        if self.bundle and not self.by_opcode:
            values.append(f"{NUMBER}={constant(self.number, 'u16')}")
        return " ".join(place + values)


def constant(number: int, kind: str) -> str:
    """Format a number as tracefs takes it for an argument's value."""
    return f"\\{number}:{kind}"


@dataclass(frozen=True)
class Event:
    """A recorded event, the kernel's own or a Probe's: recorded by perf, or in an ftrace instance
    (``ftrace``), which is cheaper and takes no stacks.

    ``whose``: a condition on the current thread, which holds besides ``filter``: ftrace can follow
    these threads instead, at a lower cost for all others (record/instance.py).
    ``stack``: how the current thread's stack is recorded: "fp" (by frame pointers), "dwarf" (the
    top of the user stack is copied, and unwound when the recording ends), "" for none.
    ``workload``: only in the workload and its children, otherwise everywhere. ``frequency``:
    samples per second on each non-idle CPU, instead of one sample per occurrence.
    ``per_task``: perf opens it on the processes of the daemons and the workload alone, because its
    samples hold their memory (perf_event_open(2), pid > 0, inherit). The kernel enforces this.
    """

    name: str  # "system:name", or one of perf's own
    filter: Filter = EVERY
    stack: str = ""
    workload: bool = False
    frequency: int = 0
    ftrace: bool = False
    per_task: bool = False
    whose: Filter = EVERY

    @property
    def condition(self) -> Filter:
        """The whole condition on its occurrences."""
        return all_of(self.whose, self.filter)
