"""What runs on the ranks of the benchmark of input."""
