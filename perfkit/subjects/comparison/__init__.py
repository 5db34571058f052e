"""Two runs or sets of repeats side by side: what changed, whether that is more than noise, and gates that limit it."""
