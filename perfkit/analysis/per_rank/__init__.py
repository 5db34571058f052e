"""From the events of one trace to the summary of one rank."""
