"""What runs on the ranks: messages, timing, checks. The only part that imports torch."""
