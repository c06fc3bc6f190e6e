"""fusetools: traces FUSE file systems with perf and trace-cmd.

>>> import fusetools
>>> recording = fusetools.open("perf.data")  # doctest: +SKIP
>>> for h in recording.hist("lookup").histograms:  # doctest: +SKIP
...     print(h.layer, h.function, h.count, h.answered.percentiles_ns["99"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"  # a test keeps Cargo.toml equal
__all__ = ["Error", "Filters", "Recording", "__version__", "open"]

if TYPE_CHECKING:
    from fusetools.answers.filters import Filters
    from fusetools.errors import Error
    from fusetools.recording import Recording, open


def __getattr__(name: str) -> object:
    # Import on first use: the command line starts faster without these modules.
    if name == "Error":
        from fusetools.errors import Error

        return Error
    if name == "Filters":
        from fusetools.answers.filters import Filters

        return Filters
    if name in ("Recording", "open"):
        from fusetools import recording

        return getattr(recording, name)
    raise AttributeError(f"module 'fusetools' has no attribute {name!r}")
