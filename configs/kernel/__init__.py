"""Kernel functions and tracepoints to trace, by the features of the kernel."""
