"""The state of this moment, from /proc and similar files or from a running perf."""
