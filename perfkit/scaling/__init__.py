"""What several runs tell together: scaling, options side by side, and what would give time back (metrics.md section 7).

Pure functions from reports of runs to records; nothing here reads a file.
"""
