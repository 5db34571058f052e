"""Analysis of a monitored run's logs: how its step time changed, what stalled it, and which ranks were late."""
