"""Windows of steps, passes and pauses."""
