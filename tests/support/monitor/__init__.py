"""Step logs whose truth is known."""
