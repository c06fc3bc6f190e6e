"""What is happening at this moment, from /proc and the like or from a perf that runs meanwhile."""
