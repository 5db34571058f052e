"""Records of what perfkit measures apart from any run."""
