"""What a rank holds and sends, and how long a step takes, by formulas."""
