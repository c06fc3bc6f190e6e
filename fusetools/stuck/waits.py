"""The object of a thread's wait, as a reason. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fusetools.reasons import Code, Reason, Value
from fusetools.stuck.graph import INVALIDATES, LOCKS, MEMORY, PAGES, Graph, ends
from fusetools.stuck.moment import Descriptor, Task
from fusetools.stuck.threads import SLEEPS, idles, waits_for_workers

MOST = 3  # processes or descriptors that are named


def wait(graph: Graph, task: Task) -> Reason:
    """Return the object of a thread's wait; its sentence follows the thread's name."""
    subject: dict[str, Value] = {"call": task.call} if task.call else {}

    def reason(code: Code, more: Mapping[str, Value] | None = None) -> Reason:
        return Reason(code, {**subject, **(more or {})})

    if task.state == "R":
        process = graph.processes.get(task.pid)
        if process and process.quota:
            group, most = process.quota
            return Reason(Code.WAIT_QUOTA, {"group": group}, {"cpus": most})
        return Reason(Code.WAIT_CPU)
    if task.state in "Tt":
        by = {"tracer": graph.named(task.tracer)} if task.tracer else {}
        return Reason(Code.WAIT_HALTED, by)
    if task.state in "ZX":
        return Reason(Code.WAIT_ENDED)
    if task.reads_device:
        return Reason(Code.WAIT_REQUEST)
    if task.may_read_device:
        return reason(Code.WAIT_RING)
    if task.lock:
        return _lock(graph, task)
    names = (*task.stack, task.wchan)
    if task.in_autofs:
        return Reason(Code.WAIT_AUTOMOUNT, {"path": task.path} if task.path else {})
    if any(name.startswith(MEMORY) for name in names):
        return Reason(Code.WAIT_MEMORY)
    if any(name.startswith(INVALIDATES) for name in names):
        return Reason(Code.WAIT_INVALIDATION)
    if task.on_frozen:
        return reason(Code.WAIT_FROZEN, {"path": task.path} if task.path else {})
    if task.tid in graph.places:
        return _mount(graph, task)
    if waits_for_workers(task):
        return Reason(Code.WAIT_WORKERS)
    if idles(task):
        return Reason(Code.WAIT_RUNTIME)
    if task.call == "futex":
        return reason(Code.WAIT_CONDITION)
    if task.call in SLEEPS:
        return reason(Code.WAIT_SLEEP)
    path = {"path": task.path} if task.path else {}
    if task.pid in task.holders:
        return reason(Code.WAIT_OWN_LOCK, path)
    if task.holders:
        held = tuple(map(graph.named, task.holders[:MOST]))
        return reason(Code.WAIT_FILE_LOCK, {**path, "holders": held})
    if task.children:
        some = tuple(map(graph.named, task.children[:MOST]))
        return Reason(Code.WAIT_CHILD, {"children": some}, {"children": len(task.children)})
    if some := tuple(_end(graph, task, fd) for fd in task.descriptors[:MOST]):
        figures = {"descriptors": len(task.descriptors)}
        call = task.call or task.wchan
        return Reason(Code.WAIT_DESCRIPTOR, {"call": call, "ends": some}, figures)
    if path:
        return reason(Code.WAIT_FILE, path)
    call = task.call or task.wchan
    return Reason(Code.WAIT_CALL, {"call": call} if call else {})


def _lock(graph: Graph, task: Task) -> Reason:
    assert task.lock is not None
    owner = None if task.lock.gone else graph.tasks.get(task.lock.owner)
    held = graph.who(owner) if owner else f"thread {task.lock.owner}"
    subject: dict[str, Value] = {"kind": task.lock.kind, "address": f"{task.lock.address:#x}"}
    if task.lock.kind == "thread":
        return Reason(Code.WAIT_JOIN, {"holder": held})
    if owner is task:
        return Reason(Code.WAIT_LOCK_ITSELF, subject)
    code = Code.WAIT_LOCK_GONE if task.lock.gone else Code.WAIT_LOCK
    return Reason(code, {**subject, "holder": held})


def _mount(graph: Graph, task: Task) -> Reason:
    names = (*task.stack, task.wchan)
    connection = graph.connections[graph.places[task.tid]]
    subject: dict[str, Value] = {"mount": connection.path}
    subject.update({"call": task.call} if task.call else {})
    if connection.mounting == task.tid:
        return Reason(Code.WAIT_INIT, subject)
    subject.update({"path": task.path} if task.path else {})
    if task.in_lock:
        others = task.holders or task.openers
        held = {"holders": tuple(map(graph.named, others[:MOST]))} if others else {}
        code = Code.WAIT_FILE_LOCK if task.holders else Code.WAIT_CALLERS_LOCK
        figures = {"openers": len(others), "alike": task.alike, "again": int(task.again)}
        return Reason(code, {**subject, **held}, figures)
    locked = any(name.startswith(LOCKS) for name in names[:3])
    if locked or not (task.in_fuse or any(name.startswith(PAGES) for name in names)):
        return Reason(Code.WAIT_KERNEL_LOCK, subject)
    if any(name.startswith("fuse_get_req") for name in names):
        return Reason(Code.WAIT_TO_SEND, subject)
    return Reason(Code.WAIT_ANSWER, subject)


def _end(graph: Graph, task: Task, fd: Descriptor) -> str:
    """Return the name of what a descriptor is connected to."""
    socket = fd.socket
    others = [pid for pid in ends(fd) if pid in graph.processes][:2]
    by = f" of {', '.join(map(graph.named, others))}" if others else ""
    by = " of its own" if fd.own else by
    if socket is None:
        if fd.link.startswith("pipe:"):
            return f"a {'full ' if task.call in ('write', 'writev') else ''}pipe{by}"
        if fd.link.startswith("socket:"):
            return "a socket"
        return fd.link
    notes = [socket.protocol] + ([socket.state] if socket.state else [])
    if socket.send_queue:
        notes.append(f"{socket.send_queue:,} bytes not acknowledged")
    if socket.receive_queue:
        notes.append(f"{socket.receive_queue:,} bytes not read")
    if not socket.accepted:
        notes.append("not accepted yet")
    where = socket.peer or "a socket"
    return f"{where}{by} ({', '.join(notes)})"
