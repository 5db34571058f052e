"""Stand-in for `torch.utils`: only what perfkit uses."""
