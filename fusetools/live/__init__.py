"""Requests while they happen, from a running perf: top, trace and the flight recorder."""
