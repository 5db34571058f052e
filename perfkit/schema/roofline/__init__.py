"""What devices can do, and what the operators of a run achieved on them."""
