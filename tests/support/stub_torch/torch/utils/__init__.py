"""As of torch: what perfkit uses of it."""
