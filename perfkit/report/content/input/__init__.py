"""Tables of `perfkit input`."""
