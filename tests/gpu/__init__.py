"""What perfkit says of a real device: run by `make gpu` where one is at hand, and by nothing else."""
