"""Tables that compare several runs."""
