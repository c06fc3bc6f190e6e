"""Probe sets: data that says what to trace, read by fusetools.plan."""
