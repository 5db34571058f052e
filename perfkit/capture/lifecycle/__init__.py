"""Processes: starting ranks, noticing that one failed or hangs, and ending the others."""
