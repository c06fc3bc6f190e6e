"""The plan: (HostFacts, probe set, Options) -> ProbePlan, without touching the host."""
