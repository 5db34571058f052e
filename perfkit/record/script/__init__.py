"""`perfkit run SCRIPT`: any training script, unchanged, under the profiler."""
