"""The commands that record runs: `perfkit run` and `perfkit sweep`."""
