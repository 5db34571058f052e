"""Commands to look at runs with: in the terminal, in the browser, and in other programs."""
