"""Holistic Trace Analysis on the traces and ranks that perfkit found, in a process of its own."""
