"""`perfkit collectives`: a benchmark of the collectives as torch issues them."""
