"""Records of a run that does not go on: what each rank left, and the diagnosis."""
