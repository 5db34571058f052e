"""What perfkit puts into a script's process: hooks of imports, torch's passes, optimizers and SIGTERM."""
