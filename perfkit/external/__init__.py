"""Other programs, run on the same traces."""
