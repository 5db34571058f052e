"""What knows nothing of traces."""
