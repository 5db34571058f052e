"""Predict how long a step would take after a change, by replaying its dependency graph (metrics.md section 17)."""
