"""Units of figures, in the annotations of results: a name in JSON ends in its unit.

``min: Ns`` is min_ns in JSON and in its schema (encode.py, fusetools.render.json.schema).
"""

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

# By the prefix of the alias.
SUFFIXES = {"Ns": "_ns", "Bytes": "_bytes", "Seconds": "_seconds"}
