"""What benchmarks with ranks share: joining, failing, progress."""
