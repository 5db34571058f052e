"""Small helpers that know nothing of traces or runs: formatting, atomic files, system limits, signals."""
