"""Helpers independent of traces and runs: formatting, atomic files, system limits, signals."""
