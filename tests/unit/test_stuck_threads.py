"""The purpose of a thread, from its own stack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusetools.starts import start_of_frames
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


LIBC, CLIENT = "/usr/lib/libc.so.6", "/usr/lib/libcvmfs.so"


@pytest.mark.parametrize(
    ("frames", "start"),
    [
        ([("clone3", LIBC), ("start_thread", LIBC), ("MainDownload", CLIENT)], "MainDownload"),
        # Debian's libc does not export start_thread.
        (
            [("[libc.so.6]", LIBC), ("a::MainDownload(void*)", CLIENT), ("f", CLIENT)],
            "MainDownload",
        ),
        (
            [
                ("[libc.so.6]", LIBC),
                ("[libstdc++.so.6.0.30]", "/usr/lib/libstdc++.so.6.0.30"),
                ("std::thread::_State_impl<std::thread::_Invoker<X> >::_M_run", CLIENT),
                ("download::DownloadManager::MainDownload", CLIENT),
            ],
            "MainDownload",
        ),
        # Frame pointers leave the caller of a libc function out.
        ([("[libc.so.6]", LIBC), ("poll", LIBC)], ""),
        ([("[libc.so.6]", LIBC), ("[libfuse3.so.3]", "/usr/lib/libfuse3.so.3"), ("f", CLIENT)], ""),
        ([("MainDownload", CLIENT), ("poll", LIBC)], ""),  # the stack may have begun before
        ([("qsort", LIBC), ("compare", CLIENT)], ""),  # it begins in the middle
        ([("[libc.so.6]", LIBC), ("main", CLIENT), ("loop", CLIENT)], ""),  # no thread's start
        ([], ""),
    ],
)
def test_the_start_of_a_recorded_thread(frames: list[tuple[str, str]], start: str) -> None:
    kernel = ("do_syscall_64", "", True)
    assert start_of_frames([*((name, path, False) for name, path in frames), kernel]) == start
