"""Recording: lock, probes, perf, workload, clean-up; needs root."""
