"""Formats for other programs: JSON, CSV, Parquet, Extra-P, TALP, and CI systems."""
