"""As of torch: its data loader."""
