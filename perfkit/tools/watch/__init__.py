"""Watching runs in a terminal while they train: reads what the monitor appends to their logs, and draws it."""
