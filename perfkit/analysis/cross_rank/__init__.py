"""What the ranks of a run show together: matched collectives, clocks, stragglers, efficiency."""
