"""Two runs, or two sets of repeats, side by side: what changed, whether it is more than noise, and what must not."""
