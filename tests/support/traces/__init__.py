"""Builders of synthetic traces, and readers that are independent of perfkit."""
