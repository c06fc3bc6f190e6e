"""Types for figures with a unit. A field's name ends in its unit (min_ns: Ns)."""

from __future__ import annotations

from fusetools.results.estimate import Estimate

Ns = int
NsFloat = float
Bytes = int
BytesFloat = float
Seconds = float

NsEstimate = Estimate
BytesEstimate = Estimate
SecondsEstimate = Estimate

# Suffix of a field's name by the prefix of its type's name.
SUFFIXES = {"Ns": "_ns", "Bytes": "_bytes", "Seconds": "_seconds"}
