"""What events are: kernels, operators, calls of the runtime."""
