"""What ends a step of a script, and what users are told about its steps."""
