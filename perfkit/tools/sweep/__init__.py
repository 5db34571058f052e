"""Sets of runs: their points, running them one after another, and job scripts that run them elsewhere.

This package never imports torch: each run has its own processes.
"""
