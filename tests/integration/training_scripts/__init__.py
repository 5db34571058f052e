"""Other programs, run and recorded by perfkit."""
