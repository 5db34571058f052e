"""The graph of steps, its replay and longest path."""
