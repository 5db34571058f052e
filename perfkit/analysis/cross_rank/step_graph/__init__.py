"""Join the graphs of all ranks to one (metrics.md section 16)."""
