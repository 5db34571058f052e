"""Builders of the files that ranks leave when they hang."""
