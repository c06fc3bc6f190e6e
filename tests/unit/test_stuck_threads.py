"""The purpose of a thread, from its own stack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusetools.stuck.moment import Descriptor, Socket, Task
from fusetools.stuck.threads import idles, start_function

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


@pytest.mark.parametrize(
    ("user", "start"),
    [
        (("__poll", "MainDownload", "start_thread", "clone3"), "MainDownload"),
        (
            (
                "poll",
                "download::DownloadManager::MainDownload(void*)",
                "start_thread",
                "__GI___clone",
            ),
            "MainDownload",
        ),
        (("f", "(anonymous namespace)::work(int)", "start_thread", "clone"), "work"),
        (
            (
                "read",
                "Pool::run()",
                "std::thread::_State_impl<std::thread::_Invoker<X> >::_M_run()",
                "execute_native_thread_routine",
                "start_thread",
                "clone3",
            ),
            "run",
        ),
        (("futex", "main.work", "runtime.goexit.abi0"), "main.work"),
        (("time_sleep", "method_vectorcall", "thread_run", "pythread_wrapper", "start_thread"), ""),
        # libfuse's own worker has no name: its callee is not where it began.
        (("read", "lookup", "[libfuse3.so.3.14.0]", "start_thread", "clone3"), ""),
        (("start_thread", "clone3"), ""),
    ],
)
def test_the_function_with_which_a_thread_began(user: tuple[str, ...], start: str) -> None:
    task = replace(waits("poll", *user), user_whole=True)
    assert start_function(task) == start
    assert start_function(replace(task, user_whole=False)) == ""
    assert start_function(replace(task, tid=task.pid)) == ""
