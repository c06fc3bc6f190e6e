"""Probe sets of file systems' daemons."""
