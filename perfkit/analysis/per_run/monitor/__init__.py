"""What the logs of a monitored run say: how its step time moved, what stalled it, and which ranks were late."""
