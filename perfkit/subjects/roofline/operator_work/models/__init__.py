"""Models of the work of torch's operators: a table of rows, `MODELS`, and the functions that they name."""
