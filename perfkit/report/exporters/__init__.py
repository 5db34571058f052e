"""Formats that other programs read: JSON, CSV, Parquet, Extra-P, TALP, and CI systems."""
