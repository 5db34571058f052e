"""Statistics: bootstrap intervals, non-negative least squares, a change-point test, rank sums."""
