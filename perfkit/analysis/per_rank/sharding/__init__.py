"""Where in a step collectives are issued, and what hid or exposed those of sharded parameters; pure functions."""
