"""Stand-in for `torch.utils.data`: only the data loader."""
