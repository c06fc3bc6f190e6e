"""The flight recorder on each kernel, with its suite's perf: by kprobes before Linux 6.12."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import vm
from samplefs import FUSETOOLS, LEFT, REPOSITORY, mount

import fusetools

pytestmark = pytest.mark.vm

FILE = "/run/mount/dir-00/file-000"


# On one kernel tests/live/test_flight_live.py proves it, and `top` in test_stuck_in_guest.py that
# kprobes are read while they are recorded.
@pytest.mark.usefixtures("campaign")
def test_a_slow_request_one_that_hangs_and_a_snap(
    guest: vm.Guest, tools: Path, tmp_path: Path
) -> None:
    guest(
        f"""{mount("--delay open=4s")}
        export PATH={tools}:$PATH
        lines() {{
          n=0
          until [ $(grep -c "$1" "$2") -ge "$3" ]; do
            n=$((n+1))
            if [ $n -gt 200 ] || ! kill -0 $recorder; then cat said >&2; exit 1; fi
            sleep 1
          done
        }}
        {FUSETOOLS} record --json --flight 5 --when 'open > 1s' --when 'waiting > 0 for 15s' \\
          > told 2> said &
        recorder=$!
        lines 'flight recorder:' said 1
        stat {FILE} > /dev/null
        cat {FILE} > /dev/null &
        caller=$!
        lines snap told 1
        wait $caller
        {FUSETOOLS} snap > snapped 2> waited
        kill -TERM $recorder
        wait $recorder
        {LEFT}"""
    )
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    first, second = told[0], told[-1]
    assert re.match(r"open > 1s: open of cat \(pid \d+\) ", first["why"]), told
    assert second["why"] == "fusetools snap"
    assert (tmp_path / "snapped").read_text() == f"{second['output']}\n"
    assert [one["lost"] for one in told] == [0] * len(told)
    data = tmp_path / Path(first["output"]).name
    (slowest,) = fusetools.open(data).slowest("open", most=1).requests
    assert slowest.operation == "open" and slowest.duration_ns > 1_000_000_000
    account = json.loads((tmp_path / f"{data.name}.stuck.json").read_text())
    assert account["mounts"][0]["path"] == "/run/mount"
    assert (tmp_path / "left").read_text() == ""


SYSTEMD = Path("/lib/systemd/systemd")


@pytest.mark.timeout(2700)
@pytest.mark.skipif(not SYSTEMD.exists(), reason="no systemd: run tools/install.sh tests")
def test_the_unit_for_systemd(
    all_kernels: bool, kernel: vm.Kernel, guest: vm.Guest, tmp_path: Path
) -> None:
    """It records, answers `snap`, restarts after it was killed, and leaves nothing after it is
    stopped.

    It follows the unit file, with shorter delays.
    """
    if not all_kernels or kernel.suite != "bookworm":
        pytest.skip("takes 6 minutes: make test-kernels runs it, on one kernel")
    tools = kernel.tools()
    unit = (REPOSITORY / "docs/fusetools-flight.service").read_text()
    for as_said, here in (
        ("/usr/bin/fusetools", str(FUSETOOLS)),
        ("--flight 30", "--flight 5"),
        ("read > 2s", "open > 1s"),
        ("RestartSec=30", "RestartSec=1"),
        ("[Service]", f"[Service]\nEnvironment=PATH={tools}:/usr/sbin:/usr/bin:/sbin:/bin"),
    ):
        assert as_said in unit
        unit = unit.replace(as_said, here)
    (tmp_path / "unit").write_text(unit)
    guest(
        f"""{mount("--delay open=4s")}
        until_said() {{
          n=0
          until [ "$(journalctl -u fusetools-flight | grep -c "$1")" -ge "$2" ]; do
            n=$((n+1))
            if [ $n -gt 300 ]; then journalctl -u fusetools-flight >&2; exit 1; fi
            sleep 1
          done
        }}
        cp unit /etc/systemd/system/fusetools-flight.service
        systemctl daemon-reload
        systemctl enable --now fusetools-flight
        until_said 'flight recorder:' 1
        cat {FILE} > /dev/null
        until_said 'open > 1s' 1
        PATH={tools}:$PATH {FUSETOOLS} snap > snapped 2> said
        systemctl kill --signal KILL --kill-who main fusetools-flight
        until_said 'flight recorder:' 2
        systemctl is-active fusetools-flight > active
        systemctl stop fusetools-flight
        systemctl show --property Result,ActiveState,NRestarts fusetools-flight > shown
        stat -c %a /var/lib/fusetools > mode
        cp -a /var/lib/fusetools state
        journalctl -u fusetools-flight > journal
        {LEFT}""",
        1200,
        systemd=True,
    )
    journal = (tmp_path / "journal").read_text()
    assert (tmp_path / "active").read_text() == "active\n", journal
    shown = dict(line.split("=") for line in (tmp_path / "shown").read_text().splitlines())
    assert shown == {"Result": "success", "ActiveState": "inactive", "NRestarts": "1"}, journal
    assert (tmp_path / "mode").read_text() == "700\n"
    snapped = Path((tmp_path / "snapped").read_text().strip())
    assert snapped.parent == Path("/var/lib/fusetools")
    written = sorted(tmp_path.glob("state/flight.data*"))
    assert snapped.name in {path.name for path in written}, journal
    recordings = [path for path in written if not path.name.endswith(".json")]
    slow = [r.duration_ns for p in recordings for r in fusetools.open(p).slowest("open").requests]
    assert max(slow) > 1_000_000_000
    assert (tmp_path / "left").read_text() == ""
