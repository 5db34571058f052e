"""Other tools on the traces and ranks that perfkit finds, each in a process of its own."""
