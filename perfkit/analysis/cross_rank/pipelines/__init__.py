"""Pipelines: which ranks form one, the bubble of each step against the ideal of its schedule, heavy stages."""
