"""Per-run analysis: rank assignment, verdict, findings and the run's report."""
