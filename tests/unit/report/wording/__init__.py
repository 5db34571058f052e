"""The words of what the analysis found."""
