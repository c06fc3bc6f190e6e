"""What to record: (HostFacts, probe set, Options) -> ProbePlan, without touching the host."""
