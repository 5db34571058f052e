"""Pipelines: their micro-batches, bubbles and schedules."""
