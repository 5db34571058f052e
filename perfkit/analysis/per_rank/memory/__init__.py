"""Memory allocated on a rank's devices: how much in each step, what for, and by whom (metrics.md section 11)."""
