"""A sweep's runs as CSV."""

from __future__ import annotations

from fusetools.csvfile import written
from fusetools.experiments.folder import Folder


def runs_csv(folder: Folder) -> str:
    """Return a CSV with a line for each run: its point, its figures, those of each operation."""
    names = sorted({name for run in folder.runs.values() for name in run.requests})
    columns = [*folder.experiment.params, "round", "seconds", "user_seconds", "system_seconds"]
    columns += ["switches", "bytes", "bytes_per_second", "lost"]
    columns += ["operations", "operations_per_second", "recorded", "cpu_seconds"]
    columns += [f"{name}_{key}" for name in names for key in _OF_OPERATION]
    rows = []
    for (index, n), run in sorted(folder.runs.items(), key=lambda item: item[0]):
        row: list[object] = [*folder.points[index].values(), n, run.seconds, run.user, run.system]
        row += [run.switches, run.bytes, run.bandwidth, run.lost]
        row += [run.operations, run.rate, int(run.recorded), run.cpu]
        for name in names:
            of = run.requests.get(name)
            row += [of.count, of.p50, of.p99, of.mean, of.size] if of else [0, *[None] * 4]
        rows.append(row)
    return written(columns, rows)


_OF_OPERATION = ("requests", "p50_ns", "p99_ns", "mean_ns", "size_bytes")
