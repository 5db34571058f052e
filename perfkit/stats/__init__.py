"""Statistics: bootstrap intervals, non-negative least squares, a test for change points."""
