"""Training a workload: the worker of a rank, the training loop, and what it measures."""
