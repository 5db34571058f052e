"""Builders of synthetic reports."""
