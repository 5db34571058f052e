"""A set of runs: which there are, how they are started one after another, and job scripts that start them elsewhere.

It never imports torch: each run is processes of its own, and what their options come to is found out in one more.
"""
