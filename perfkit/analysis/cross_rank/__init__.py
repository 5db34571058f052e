"""Cross-rank analysis of a run: matched collectives, clocks, stragglers, efficiency."""
