"""`perfkit doctor`: what this machine has of what perfkit uses, and what to do about what is missing."""
