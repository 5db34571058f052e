"""Holistic Trace Analysis on the traces and ranks that perfkit found, in a separate process."""
