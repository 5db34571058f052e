"""What each part of a step had to wait for, as a graph over all ranks; its replay and its critical path.

metrics.md section 16 has the definitions.
"""
