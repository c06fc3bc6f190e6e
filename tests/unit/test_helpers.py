"""The thread whose work another one waited for, from moments as the core returns them."""

from __future__ import annotations

from typing import Any

from fusetools.answers.catalogue import Probe
from fusetools.answers.helpers import chains
from fusetools.answers.requests import Connections, Span, peer
from fusetools.results.request import Helper, SyscallTime

ROLES = ("switch", "waking", "sys_enter", "sys_exit", "connect")
PROBES = [Probe(f"x:{role}", "syscall", "", "", role) for role in ROLES]
SWITCH, WAKING, ENTER, EXIT, CONNECT = range(5)
WORKER, DOWNLOAD, RESOLVER = 7, 8, 9
PROXY = (3128, 0, int.from_bytes(b"\0\0\xff\xff\xc0\0\2\1", "little"))


def of(time: int, tid: int, kind: int, *values: int, call: str | None = None) -> tuple[Any, ...]:
    padded = [*values, *[None] * (4 - len(values))]
    return (time, tid, 0, kind, padded, call)


def woken(time: int, waker: int, tid: int, flags: int = 0) -> tuple[Any, ...]:
    return of(time, waker, WAKING, tid, flags)


class Machine:
    """Return moments by thread, given as spans, as the core does."""

    def __init__(self, **threads: list[tuple[Any, ...]]) -> None:
        self.threads = {int(name[1:]): moments for name, moments in threads.items()}
        self.asked: list[list[Span | None]] = []

    def __call__(self, spans: list[Span | None]) -> list[list[tuple[Any, ...]]]:
        self.asked.append(spans)
        return [
            [m for m in self.threads.get(s.tid, []) if s.start <= m[0] <= s.end] if s else []
            for s in spans
        ]


def helpers(
    machine: Machine, span: Span, connected: dict[int, str] | None = None
) -> tuple[Helper, ...]:
    (found,) = chains([span], machine([span]), machine, PROBES, [Connections(connected)])
    return found


def test_a_download_by_another_thread() -> None:
    machine = Machine(
        t7=[
            of(100, WORKER, SWITCH, WORKER, 1, 0),
            woken(110, DOWNLOAD, WORKER),  # for the lock, a moment only
            of(112, DOWNLOAD, SWITCH, DOWNLOAD, 1, WORKER),
            of(120, WORKER, SWITCH, WORKER, 1, 0),
            woken(900, DOWNLOAD, WORKER),
            of(905, 0, SWITCH, 0, 0, WORKER),
        ],
        t8=[
            of(115, DOWNLOAD, ENTER, call="poll"),
            of(130, DOWNLOAD, EXIT, call="poll"),
            of(140, DOWNLOAD, ENTER, call="connect"),
            of(145, DOWNLOAD, CONNECT, *PROXY),
            of(150, DOWNLOAD, EXIT, call="connect"),
            of(160, DOWNLOAD, ENTER, call="poll"),
            of(860, DOWNLOAD, EXIT, call="poll"),
            of(890, DOWNLOAD, ENTER, call="futex"),
        ],
    )
    assert helpers(machine, Span(WORKER, 90, 1000)) == (
        # The first poll had begun before: it counts from the begin of the wait.
        Helper(
            DOWNLOAD,
            780,
            tuple(
                SyscallTime(*row)
                for row in (("poll", 2, 710), ("connect", 1, 10), ("futex", 1, 10))
            ),
            ("192.0.2.1:3128",),
        ),
    )


def test_a_chain_and_its_end() -> None:
    """A thread that itself waited for a third one; and the third for the first."""
    machine = Machine(
        t7=[of(10, WORKER, SWITCH, WORKER, 1, 0), woken(90, DOWNLOAD, WORKER)],
        t8=[
            of(15, DOWNLOAD, ENTER, call="futex"),
            of(16, DOWNLOAD, SWITCH, DOWNLOAD, 1, 0),
            woken(80, RESOLVER, DOWNLOAD),
            of(85, DOWNLOAD, EXIT, call="futex"),
        ],
        t9=[
            of(16, RESOLVER, ENTER, call="recvfrom"),
            of(17, RESOLVER, SWITCH, RESOLVER, 1, 0),
            woken(75, WORKER, RESOLVER),
            of(76, RESOLVER, EXIT, call="recvfrom"),
        ],
    )
    first, second = helpers(machine, Span(WORKER, 0, 100))
    assert (first.tid, first.waited_ns, first.syscalls) == (DOWNLOAD, 80, (("futex", 1, 70),))
    assert first.peers == ()
    assert (second.tid, second.waited_ns) == (RESOLVER, 64)
    assert second.peers is None  # of a socket, whose owner is unknown


def test_threads_that_did_not_help() -> None:
    asleep = of(10, WORKER, SWITCH, WORKER, 1, 0)
    span = Span(WORKER, 0, 100)
    calls = [of(20, DOWNLOAD, ENTER, call="poll"), of(30, DOWNLOAD, EXIT, call="poll")]
    # An interrupt, in whatever thread; the idle task; after the reply.
    for ended in (
        woken(90, DOWNLOAD, WORKER, 8),
        woken(90, DOWNLOAD, WORKER, 16),
        woken(90, 0, WORKER),
        woken(190, DOWNLOAD, WORKER),
    ):
        assert helpers(Machine(t7=[asleep, ended], t8=calls), span) == ()
    # An unrecorded thread has no system calls.
    assert helpers(Machine(t7=[asleep, woken(90, DOWNLOAD, WORKER)]), span) == ()
    assert chains([None], [[]], Machine(), PROBES, [Connections()]) == [()]


def test_connections_that_there_were_all_the_time() -> None:
    """By the descriptors that a thread uses: of sockets, or of possible ones."""
    machine = Machine(
        t7=[of(10, WORKER, SWITCH, WORKER, 1, 0), woken(90, DOWNLOAD, WORKER)],
        t8=[
            of(15, DOWNLOAD, ENTER, 7, 6, call="poll"),  # of six descriptors
            of(16, DOWNLOAD, EXIT, 7, 1, call="poll"),
            of(20, DOWNLOAD, ENTER, 0, 4, call="read"),
            of(30, DOWNLOAD, EXIT, 0, 9, call="read"),
            of(40, DOWNLOAD, ENTER, 45, 5, call="recvfrom"),
            of(50, DOWNLOAD, EXIT, 45, 9, call="recvfrom"),
        ],
    )
    span = Span(WORKER, 0, 100)
    for connected, expected in (
        ({4: "10.0.0.4:80", 5: "[::1]:443", 6: "10.0.0.6:80"}, ("10.0.0.4:80", "[::1]:443")),
        ({4: "10.0.0.4:80"}, ("10.0.0.4:80",)),
        ({6: "10.0.0.6:80"}, None),
    ):
        (helper,) = helpers(machine, span, connected)
        assert helper.peers == expected


def test_peers() -> None:
    assert peer(PROXY) == "192.0.2.1:3128"
    first, last = (
        int.from_bytes(half, "little") for half in (b"\x20\1\r\xb8\0\0\0\0", b"\0" * 7 + b"\1")
    )
    assert peer((80, first, last)) == "[2001:db8::1]:80"
    assert peer((80, None, None)) is None
