"""What to trace in the kernel, by what the kernel has."""
