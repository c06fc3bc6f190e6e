"""What to record: (HostFacts, probe set, Request) -> ProbePlan, without touching the host."""
