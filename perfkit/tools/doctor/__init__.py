"""`perfkit doctor`: what perfkit can use on this machine, and how to get what is missing."""
