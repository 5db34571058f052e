"""Step logs with known step times."""
