"""What a rank's waits for batches were spent on (metrics.md section 24)."""
