"""Why ranks do not go on: reading what they left, and comparing it. Without torch."""
