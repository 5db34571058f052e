"""From the summaries of ranks to the report of a run: rank assignment, verdict, findings."""
