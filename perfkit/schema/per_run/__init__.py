"""Parts of the record of a run."""
