"""Tables of what communication libraries logged."""
