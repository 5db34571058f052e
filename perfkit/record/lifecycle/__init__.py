"""Processes of a run: starting ranks, detecting that one failed or hangs, and ending the others."""
