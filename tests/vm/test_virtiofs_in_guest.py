"""A mount whose daemon is outside of the machine: virtiofs, answered by the host's virtiofsd."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import vm
from mounts import wait_until
from samplefs import FUSETOOLS

import fusetools
from fusetools.host.mounts import BEYOND
from fusetools.reasons import of_daemon

pytestmark = pytest.mark.vm

VIRTIOFSD = Path("/usr/lib/qemu/virtiofsd")
FILES = 7


@pytest.mark.skipif(not VIRTIOFSD.exists(), reason="no virtiofsd of QEMU 7 here")
def test_virtiofs(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    """Its requests are recorded; while its daemon is stopped, `stuck` names it and the callers.

    If its host has a file system mounted in the shared directory, the guest has it, too.
    """
    share, socket = tmp_path / "share", tmp_path / "socket"
    sub = share / "sub"
    sub.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", sub], check=True)
    for n in range(FILES):
        (share / f"file{n}").write_text("x" * 5000)
        (sub / f"file{n}").write_text("x" * 5000)
    daemon = subprocess.Popen(
        [
            VIRTIOFSD,
            f"--socket-path={socket}",
            *("-f", "-o", f"source={share}", "-o", "sandbox=chroot", "-o", "cache=none"),
            *("-o", "announce_submounts"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    console = tmp_path / ".vm" / "console"
    ended = threading.Event()

    def stop_and_go_on() -> None:
        for word, number in (b"it is stopped", signal.SIGSTOP), (b"it goes on", signal.SIGCONT):
            while not (console.exists() and word in console.read_bytes()):
                if ended.wait(0.1):
                    return
            daemon.send_signal(number)

    thread = threading.Thread(target=stop_and_go_on)
    try:
        wait_until(socket.exists, "virtiofsd's socket")
        thread.start()
        memory = f"memory-backend-memfd,id=memory,size={vm.MEMORY}M,share=on"
        guest(
            f"""export PATH={tools}:$PATH
            set -e
            mkdir /run/v
            mount -t virtiofs share /run/v
            cat /run/v/sub/file0 > /dev/null
            grep " /run/v/sub " /proc/self/mountinfo > mountinfo
            {FUSETOOLS} record --mount /run/v --mount /run/v/sub -- \
              sh -c 'cat /run/v/file* /run/v/sub/file*' > recorded
            {FUSETOOLS} stuck --json > quiet.json
            # However this ends: a mount that hangs does not let the machine end.
            trap 'echo it goes on > /dev/console' EXIT
            echo it is stopped > /dev/console
            # Until one waits: others may come before the signal.
            until grep -qs '^State:.[DS]' /proc/$reader/status; do
              cat /run/v/sub/file3 > /dev/null &
              reader=$!
              sleep 3
            done
            {FUSETOOLS} stuck --json > stuck.json && exit 1
            echo it goes on > /dev/console
            wait
            umount -R /run/v""",
            devices=(
                *("-object", memory, "-numa", "node,memdev=memory"),
                *("-chardev", f"socket,id=share,path={socket}"),
                *("-device", "vhost-user-fs-pci,chardev=share,tag=share"),
            ),
        )
    finally:
        ended.set()
        daemon.send_signal(signal.SIGCONT)
        daemon.kill()
        daemon.wait()
        if thread.ident:
            thread.join()
        subprocess.run(["umount", "-l", sub], check=True)

    recording = fusetools.open(tmp_path / "perf.data")
    counted = recording.counts()
    counts = {count.operation: count.count for count in counted.counts if count.layer == "request"}
    files = 2 * FILES  # of both mounts
    assert (counts["open"], counts["release"], counts["read"] >= files) == (files, files, True)
    requests = counted.facts.requests
    assert requests.matched == requests.begun == sum(counts.values())
    (missing,) = counted.facts.missing  # both are one connection
    assert of_daemon(missing) and missing.subject["path"] == "/run/v"
    assert (tmp_path / "mountinfo").read_text().count(" virtiofs none ") == 1
    (mount,) = json.loads((tmp_path / "quiet.json").read_text())["mounts"]
    assert (mount["path"], mount["fstype"], mount["state"]) == ("/run/v", "virtiofs", "quiet")
    (mount,) = json.loads((tmp_path / "stuck.json").read_text())["mounts"]
    assert [caller["comm"] for caller in mount["callers"]] == ["cat"]
    (cause,) = mount["causes"]
    assert (cause["kind"], cause["text"]) == ("unanswered", f"/run/v is not answered: {BEYOND}")
