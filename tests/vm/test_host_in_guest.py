"""The facts of each kernel, read in a guest, equal those on which the plans are tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import vm
from samplefs import FUSETOOLS, REPOSITORY, SAMPLES

from fusetools.names import LOCKS, READS, RINGS

LIBRARY = SAMPLES / "with-symbols" / "libcvmfs_fuse3.so.0.1.0"
# Facts that follow from the kernel's version and configuration alone, not from its build.
FIELDS = (
    "tracers dynamic_events fetch_args maxactive clocks graph_options tracepoints fuse fuse_module"
    " fuse_send_unique unwinds_kretprobes btf btf_modules perf_can_record ftrace_users own_events"
)
pytestmark = pytest.mark.vm

READ = """
import json
from fusetools.host.probe import read_host
from fusetools.host.selftest import self_test_unique
facts = read_host()
unique = self_test_unique()
print(json.dumps({**json.loads(facts.to_json()), "fuse_send_unique": unique}))
raise SystemExit
"""


def test_facts_of_a_running_kernel_are_the_stored_ones(
    kernel: vm.Kernel, guest: vm.Guest, tmp_path: Path
) -> None:
    version = ".".join(kernel.release.split(".")[:2])
    stored = REPOSITORY / "tests" / "host_facts" / version / "facts.json"
    if not stored.exists():
        pytest.skip(f"no stored facts of kernel {kernel.release}")
    expected = json.loads(stored.read_text())
    result = guest(
        f"""set -e
        mkdir /run/tree /run/mount
        {SAMPLES}/with-symbols/samplefs --socket /run/talk /run/tree /run/mount
        FORKED='{READ}' {FUSETOOLS}
        {FUSETOOLS} doctor > doctor.txt"""
    )
    facts = json.loads(result.stdout)
    # The stored kernels' files are those of FUSE, the scheduler and all system calls.
    for name in ("sock:inet_sock_set_state", "signal:signal_generate", LOCKS, *READS):
        facts["tracepoints"].remove(name)
    facts["tracepoints"] = [name for name in facts["tracepoints"] if name not in RINGS.values()]
    assert {name: facts[name] for name in FIELDS.split()} == {
        name: expected[name] for name in FIELDS.split()
    }
    if facts["kernel"] == expected["kernel"]:
        for name in ("kallsyms_fuse", "filter_functions_fuse"):
            # The stored files lack that of virtiofs, which some kernels have.
            here = {it for it in facts[name] if not it.startswith("virtio_fs_send_req")}
            assert here == set(expected[name])
        # pahole's output for the same BTF
        assert facts["fuse_members"] == expected["fuse_members"]
        told = dict(facts["fuse_functions"])
        for name, takes in expected["fuse_functions"]:
            assert told.get(name) == takes, name
    (mount,) = facts["mounts"]
    assert (mount["path"], mount["comm"], mount["why"]) == ("/run/mount", "samplefs", "")
    paths = [library["host_path"] for library in mount["libraries"]]
    assert str(LIBRARY) in paths
    # All of them, and no probe of another layer.
    assert f"14 callbacks in {LIBRARY.name}" in (tmp_path / "doctor.txt").read_text()
