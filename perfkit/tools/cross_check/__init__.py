"""Run other tools on the traces that perfkit finds, each in its own process."""
