"""Tables as column specifications, and names that tables share."""
