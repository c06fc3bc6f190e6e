"""Experiments: workloads run again and again, with and without the probes."""
