"""The step log `rank<R>.steps` of a run's folder: written by the monitor, read while it grows and afterwards."""
