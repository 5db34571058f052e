"""What the monitor writes of every step: the columns of a rank's step log, and its header."""
