"""The purpose of a thread, from its own stack."""

from __future__ import annotations

from fusetools.stuck.moment import Descriptor, Socket, Task
from fusetools.stuck.threads import idles

WAKES = Descriptor(5, "socket:[7]", Socket("unix", "", "", 0, 0), own=True)
SERVER = Descriptor(6, "socket:[8]", Socket("tcp", "10.0.0.1:80", "ESTABLISHED"))


def waits(call: str, *user: str, descriptors: tuple[Descriptor, ...] = ()) -> Task:
    return Task(100, 101, "daemon", "S", call=call, user=user, descriptors=descriptors)


def test_threads_of_go() -> None:
    for name in ("internal/runtime/syscall/linux.EpollWait", "runtime/internal/syscall.EpollWait"):
        assert idles(waits("epoll_pwait", "Syscall6", name))
    assert not idles(waits("futex", "golang.org/x/sys/unix.EpollWait", "main.work"))


def test_threads_of_tokio() -> None:
    """One of them drives epoll: for sockets of others, or for wake-ups by its own process."""
    worker = "tokio::runtime::scheduler::multi_thread::worker::"
    assert idles(waits("futex", "syscall", "tokio::runtime::scheduler::multi_thread::park::Inner"))
    drives = ("epoll_wait", "mio::poll::Poll::poll", f"{worker}Context::park_internal")
    assert idles(waits("epoll_wait", *drives))
    assert idles(waits("epoll_wait", *drives, descriptors=(WAKES,)))
    assert not idles(waits("epoll_wait", *drives, descriptors=(WAKES, SERVER)))
    works = ("syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended", "fs::read")
    for below in (f"{worker}run", "tokio::runtime::park"):
        assert not idles(waits("futex", *works, below))
