"""Commands that open a browser."""
