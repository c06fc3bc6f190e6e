"""Recording: its catalogue, its queries to the core, its errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_core import TRACEPOINTS, FakeCore, Made, cvmfs_like, probes
from fixtures import Fake, Invoke
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fusetools
from fusetools import errors, session
from fusetools._core import Catalogue, Probe, operation_of
from fusetools.answers.filters import Filters
from fusetools.core import OPERATIONS
from fusetools.patterns import expression
from fusetools.reasons import Code, Reason, of_daemon
from fusetools.results.encode import encode
from fusetools.session import Session

CERNVMFS = [
    "dummy:HG",
    "fuse_daemon:cvmfs_lookup",
    "fuse_daemon:cvmfs_lookup__return",
    "fuse_daemon:cvmfs_forget_multi",
    "fuse_kernel:queue_request",
    "fuse_kernel:fuse_request_end",
    "fuse_kernel:request_wait_answer",
    "fuse_kernel:request_wait_answer__return",
    "sched:sched_switch",
]


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        ("cvmfs_lookup", "lookup"),
        ("stub_getattr", "getattr"),
        ("fuse_lib_readdirplus", "readdirplus"),
        ("fuse_lookup", "lookup"),
        ("cvmfs_forget_multi", "batch_forget"),
        ("read", "read"),
        ("request_wait_answer", ""),
        ("cvmfs_init_all", ""),
        ("my_lookup", ""),
    ],
)
def test_operation_of(function: str, operation: str) -> None:
    assert operation_of(function) == operation


def test_operations_are_those_of_the_kernel() -> None:
    header = Path("/usr/include/linux/fuse.h")
    if not header.exists():
        pytest.skip(f"no {header}")
    body = header.read_text().split("enum fuse_opcode {")[1].split("}")[0]
    of_header = re.findall(r"^\s*FUSE_(\w+)\s*=", body, re.MULTILINE)
    names = {name.lower() for name in of_header if not name.endswith("_RESERVED")}
    assert "lookup" in names and names <= OPERATIONS


def by_convention(events: Sequence[str]) -> Sequence[Probe]:
    return Catalogue([], events).inferred([]).rows


def select(
    catalogue: Catalogue, patterns: Sequence[str], layers: Sequence[str], filters: Filters
) -> Sequence[Probe]:
    regexes = [expression(pattern) for pattern in patterns]
    return catalogue.select(regexes, layers, filters.callers, []).rows


def test_convention() -> None:
    assert set(by_convention(CERNVMFS)) == {
        Probe("fuse_daemon:cvmfs_lookup", "daemon", "cvmfs_lookup", "lookup", "entry"),
        Probe("fuse_daemon:cvmfs_lookup__return", "daemon", "cvmfs_lookup", "lookup", "return"),
        Probe(
            "fuse_daemon:cvmfs_forget_multi",
            "daemon",
            "cvmfs_forget_multi",
            "batch_forget",
            "entry",
        ),
        Probe("fuse_kernel:queue_request", "request", "", "", "begin"),
        Probe("fuse_kernel:queue_request", "kernel", "queue_request", "", "entry"),
        Probe("fuse_kernel:fuse_request_end", "request", "", "", "end"),
        Probe("fuse_kernel:fuse_request_end", "kernel", "fuse_request_end", "", "entry"),
        Probe("fuse_kernel:request_wait_answer", "kernel", "request_wait_answer", "", "entry"),
        Probe(
            "fuse_kernel:request_wait_answer__return", "kernel", "request_wait_answer", "", "return"
        ),
    }


def test_convention_takes_tracepoints_where_there_is_no_kprobe() -> None:
    found = by_convention(
        ["fuse:fuse_request_send", "fuse:fuse_request_end", "fuse_kernel:fuse_request_end"]
    )
    assert Probe("fuse:fuse_request_send", "request", "", "", "begin") in found
    assert Probe("fuse:fuse_request_end", "request", "", "", "end") in found
    assert ("fuse_kernel:fuse_request_end", "kernel") in {(p.event, p.layer) for p in found}


LOOKUP = {"fuse_daemon:cvmfs_lookup", "fuse_daemon:cvmfs_lookup__return"}
OPEN = {"fuse_daemon:cvmfs_open", "fuse_daemon:cvmfs_open__return"}
REQUESTS = {"fuse:fuse_request_send", "fuse:fuse_request_end"}
SYSCALLS = {"raw_syscalls:sys_enter", "raw_syscalls:sys_exit"}


@pytest.mark.parametrize(
    ("patterns", "layers", "filters", "needed"),
    [
        ((), (), Filters(), LOOKUP | OPEN | REQUESTS | SYSCALLS),
        ((), ("daemon",), Filters(), LOOKUP | OPEN),
        (("lookup",), (), Filters(), LOOKUP | REQUESTS | SYSCALLS),
        (("lookup",), ("daemon",), Filters(), LOOKUP),
        (("cvmfs_lookup",), (), Filters(), LOOKUP),
        # A call that returns without an answer was interrupted.
        (("lookup",), ("request",), Filters(), REQUESTS | SYSCALLS),
        (("lookup",), ("syscall",), Filters(), REQUESTS | SYSCALLS),
        (("newfstatat",), (), Filters(), REQUESTS | SYSCALLS),
        (("FUSE_LOOKUP",), (), Filters(), REQUESTS | SYSCALLS),
        # Only a request tells who called the daemon.
        (("cvmfs_lookup",), (), Filters(pids=(1,)), LOOKUP | REQUESTS),
        ((), ("daemon",), Filters(comms=("find",)), LOOKUP | OPEN | REQUESTS),
        (("cvmfs_lookup",), (), Filters(start_ns=5), LOOKUP),
    ],
)
def test_only_what_the_question_needs_is_read(
    patterns: tuple[str, ...], layers: tuple[str, ...], filters: Filters, needed: set[str]
) -> None:
    described = probes(("daemon", "cvmfs_lookup", "lookup"), ("daemon", "cvmfs_open", "open"))
    catalogue = Catalogue([Probe(**row) for row in described], TRACEPOINTS).inferred([])
    assert {p.event for p in select(catalogue, patterns, layers, filters)} == needed


def test_replies_need_requests_and_system_calls() -> None:
    rows = [
        Probe("fuse_daemon:fuse_reply_entry", "daemon", "fuse_reply_entry", "", "reply"),
        Probe("fuse:fuse_request_send", "request", "", "", "begin"),
        Probe("raw_syscalls:sys_exit", "syscall", "", "", "sys_exit"),
        Probe("sched:sched_switch", "syscall", "", "", "switch"),
    ]
    assert select(Catalogue(rows), ("lookup",), ("daemon",), Filters()) == rows[:3]


def test_filters_reach_the_core(fake: Fake) -> None:
    core = fake(cvmfs_like())
    filters = Filters((7,), ("find",), ("/mnt/",), 1_500_000_000, 2_000_000_000)
    facts = fusetools.open().hist(filters=filters).facts
    assert core.asked[-1][2] == {
        "pids": [7],
        "comms": ["find"],
        "connections": [45],
        "daemon_pids": [20],
        "daemons": [(20, 45)],
        "opened": [],
        "from_ns": 1_500_000_000,
        "to_ns": 2_000_000_000,
    }
    assert facts.seconds == 0.5


def test_hist(fake: Fake) -> None:
    fake(cvmfs_like())
    found = fusetools.open("perf.data").hist("lookup", layers=["daemon"])
    (h,) = found.histograms
    assert (h.operation, h.layer, h.function) == ("lookup", "daemon", "cvmfs_lookup")
    assert (h.count, h.unmatched) == (1796, 1)
    assert sum(n for _, _, n in h.buckets) == h.count
    assert found.facts.probe_cost_ns == 1800


def test_a_function_that_was_never_called_is_a_result(fake: Fake) -> None:
    core = cvmfs_like()
    core.made = [m for m in core.made if m.function != "cvmfs_forget"]
    fake(core)
    (h,) = fusetools.open().hist("forget").histograms
    assert (h.function, h.count, h.min_ns, h.percentiles_ns) == ("cvmfs_forget", 0, None, {})


def test_a_function_without_a_return_probe_counts_but_has_no_durations(fake: Fake) -> None:
    fake(
        FakeCore(
            [Made("kernel", "fuse_lookup", "lookup", [], 5)], events=["fuse_kernel:fuse_lookup"]
        )
    )
    recording = fusetools.open()
    assert [(c.function, c.count, c.latency) for c in recording.counts().counts] == [
        ("fuse_lookup", 5, None)
    ]
    assert recording.hist().histograms == ()


def test_the_calibration_is_no_result(fake: Fake) -> None:
    core = cvmfs_like()
    core.session["probes"] += probes(("daemon", "fusetools_calibrate", ""))
    core.made.append(Made("daemon", "fusetools_calibrate", "", [1800] * 1000))
    fake(core)
    assert "fusetools_calibrate" not in {c.function for c in fusetools.open().counts().counts}
    assert not any("calibrate" in str(row) for row in core.asked[-1][1])


def test_counts(fake: Fake) -> None:
    fake(cvmfs_like())
    result = fusetools.open().counts("^cvmfs_(lookup|open)$")
    assert [(c.function, c.count) for c in result.counts] == [
        ("cvmfs_lookup", 1797),
        ("cvmfs_open", 24),
    ]
    assert result.counts[0].address == 0xD2100


def test_losses_are_added_up(fake: Fake) -> None:
    core = cvmfs_like()
    core.lost, core.throttled, core.warnings = 3, 2, ["cut off at byte 5"]
    core.session["lost"] = {"perf": 3, "trace-cmd": 4}
    core.session["misses"] = {"fuse_kernel:a": 9, "b": 0}
    core.session["warnings"] = ["cut off at byte 5", "the daemon died"]
    fake(core)
    losses = fusetools.open().counts().facts.losses
    assert (losses.lost, losses.throttled) == (7, 2)
    assert losses.warnings[:2] == ("cut off at byte 5", "the daemon died")
    assert "fuse_kernel:a" in losses.warnings[2] and "9" in losses.warnings[2]
    assert len(losses.warnings) == 3


def test_requests_that_cannot_be_matched_are_said(fake: Fake) -> None:
    core = cvmfs_like()
    core.requests = (5, 0, 0)
    fake(core)
    assert "no request could be matched" in fusetools.open().counts().facts.losses.warnings[0]


# Errors


def fails(path: str, why: str) -> errors.Error:
    with pytest.raises(errors.Error) as caught:
        fusetools.open(path)
    assert why in caught.value.why
    assert caught.value.fix
    return caught.value


def test_no_such_file(tmp_path: Path) -> None:
    fails(str(tmp_path / "perf.data"), "no such file")


def test_a_directory(tmp_path: Path) -> None:
    assert "record" in fails(str(tmp_path), "directory").fix
    (tmp_path / "perf.data").touch()
    assert f"{tmp_path}/perf.data" in fails(str(tmp_path), "directory").fix


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    fails(str(tmp_path / "fifo"), "not a file")


def test_a_nul_in_the_name() -> None:
    fails("a\0b", "null byte")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:  # root may read everything
        raise PermissionError(13, "Permission denied")

    (tmp_path / "perf.data").touch()
    monkeypatch.setattr(Path, "open", refuse)
    assert "sudo" in fails(str(tmp_path / "perf.data"), "permission").fix


def test_warnings_of_the_core_are_passed_on(fake: Fake) -> None:
    fake(FakeCore([], fail=("cannot read perf.data", "not a perf.data file")))
    assert fails("perf.data", "not a perf.data file").what == "cannot read perf.data"


def test_a_recording_without_fuse(fake: Fake) -> None:
    fake(FakeCore([], events=["cycles", "raw_syscalls:sys_enter"]))
    assert "no FUSE events" in fails("perf.data", "not made by fusetools").what


def test_a_pattern_that_matches_nothing(fake: Fake) -> None:
    fake(cvmfs_like())
    with pytest.raises(errors.Error) as caught:
        fusetools.open().hist("lokup")
    assert "lookup" in caught.value.why
    # An operation without calls is an answer.
    assert fusetools.open().hist("fallocate").histograms == ()


def test_a_mount_that_is_not_there(fake: Fake) -> None:
    fake(cvmfs_like())
    with pytest.raises(errors.Error, match="/cvmfs is no mount") as caught:
        fusetools.open().hist(filters=Filters(mounts=("/cvmfs",)))
    assert "/mnt" in caught.value.why


def test_mounts_need_a_session(fake: Fake) -> None:
    fake(replace(cvmfs_like(), session=None, events=CERNVMFS))
    with pytest.raises(errors.Error, match="mounts"):
        fusetools.open().hist(filters=Filters(mounts=("/cvmfs",)))


# The session is untrusted

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
ROW_KEYS = ["event", "layer", "function", "operation", "role", "address", "path", "what", "why"]
ROW_KEYS += ["code", "subject", "figures"]
ROWS = st.lists(
    st.dictionaries(
        st.sampled_from([*ROW_KEYS, "fix", "connection", "daemon_pid"]),
        JSON | st.sampled_from(["daemon", "entry", "request", *Code]),
        max_size=6,
    ),
    max_size=3,
)
HOSTILE = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["format", "seconds", "misses", "lost", "probe_cost_ns"], JSON),
        **dict.fromkeys(["probes", "mounts", "missing"], JSON | ROWS),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(HOSTILE)
def test_any_session_gives_figures_or_an_error(fake: Fake, run: Invoke, session: object) -> None:
    fake(replace(cvmfs_like(), session=json.dumps(session), events=CERNVMFS))
    result = run("hist")
    assert result.exit_code in (0, 1)
    json.loads(run("count", "--json").stdout)


@pytest.mark.parametrize("text", ["", "[" * 50_000, "{", "[]", "null", "\0", "9" * 50_000])
def test_a_broken_session_is_said(fake: Fake, text: str) -> None:
    fake(replace(cvmfs_like(), session=text, events=CERNVMFS))
    warnings = fusetools.open().counts().facts.losses.warnings
    assert any("facts cannot be read" in w for w in warnings)


MISSING = {"what": "callbacks of /mnt/kernel", "why": "it is stripped", "fix": "install it"}


def test_missing_reasons_concern_their_layer(fake: Fake, run: Invoke) -> None:
    """Not of a layer whose name is in its prose by chance; a layer with figures is never reported
    as missing."""
    core = replace(cvmfs_like(), session={**cvmfs_like().session, "missing": []})
    for layer, shown in (("daemon", True), ("kernel", True), ("stacks", False), ("", False)):
        rows = [{**MISSING, "layer": layer}]
        fake(replace(core, session={**core.session, "missing": rows}))
        (missing,) = fusetools.open().counts().facts.missing
        assert missing.layer == layer
        text = run("hist", "lookup").stdout
        assert ("  kernel   not recorded: it is stripped" in text) == (layer == "kernel")
        footer = "not recorded: callbacks of /mnt/kernel (it is stripped)"
        assert (footer in text) == (layer == "daemon")
        assert (footer in run("count").stdout) == shown


def test_an_older_recording_tells_the_layer_by_its_words(fake: Fake) -> None:
    for what, layer in (("system calls", "syscall"), ("daemon of /mnt", "daemon"), ("x", "")):
        row = {"what": what, "why": "so", "mend": "a fix"}
        now = {key: row for key, row in cvmfs_like().session.items() if key != "missing"}
        fake(replace(cvmfs_like(), session={**now, "unavailable": [row]}))
        missing = fusetools.open().counts().facts.missing[0]
        assert (missing.layer, missing.fix) == (layer, "a fix")
        assert (missing.code, missing.text) == (Code.OTHER, f"{what}: so")
        assert of_daemon(missing) == (layer == "daemon")


def test_reasons_survive_the_recording() -> None:
    made = (
        Reason(Code.STRIPPED, {"part": "callbacks", "path": "/a", "pid": 7}, {}, "a fix", "daemon"),
        Reason(Code.DAEMON_SHARED, {"others": ("/b", "/c")}, layer="daemon"),
        Reason(Code.BUFFERS_FULL, {}, {"held_ns": 5, "share": 0.5}),
        Reason(Code.OTHER, {"what": "x", "why": "y"}),
    )
    read, warnings = session.read(session.encoded(Session(missing=made)))
    assert read.missing == made and not warnings


def test_a_reason_of_a_newer_version_keeps_its_name() -> None:
    row = {"code": "no_such_code_yet", "subject": {"path": "/a"}, "fix": "a fix"}
    (reason,) = session.read(json.dumps({"format": 2, "missing": [row]}))[0].missing
    assert (reason.code, reason.text, reason.fix) == (Code.OTHER, "no_such_code_yet", "a fix")


def test_a_stranger_s_reason_has_harmless_parts() -> None:
    """Each code is printed, whatever its subject and figures are."""
    odd = {"threads": float("nan"), "ago_ns": -1, "cpus": True, "x": [], "callers": 2**70}
    subject = {"path": {"a": 1}, "pids": [1, None, "x", [2]], "comms": "x", "cause": ["a"]}
    rows = [{"code": code, "subject": subject, "figures": odd} for code in Code]
    found = session.read(json.dumps({"format": 2, "missing": rows}))[0].missing
    assert [reason.code for reason in found] == list(Code)
    assert not any(reason.figures for reason in found)
    assert {reason.subject["pids"] for reason in found} == {(1, "x")}
    json.dumps([encode(reason) for reason in found], allow_nan=False)
