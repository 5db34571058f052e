"""When no step ends: what each rank does is written to the run's folder, and compared."""
