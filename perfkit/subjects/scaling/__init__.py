"""Multi-run analysis: scaling series, efficiency losses, forecasts and option comparisons (metrics.md section 7).

Pure functions from run reports to records; nothing here reads a file.
"""
