"""Breakdowns of the same run by other tools, each in its own process."""
