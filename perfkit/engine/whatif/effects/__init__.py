"""What each kind of change does to the graph of steps (metrics.md section 17)."""
