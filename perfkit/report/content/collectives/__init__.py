"""Tables of `perfkit collectives`."""
