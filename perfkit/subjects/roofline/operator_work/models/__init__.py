"""Models of the work of torch's operators: a table of rows, `MODELS`, and one file per family."""
