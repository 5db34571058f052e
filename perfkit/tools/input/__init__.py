"""`perfkit input`: how fast samples are read, without a model. `measure` is what runs on the ranks."""
