"""Communication by dimension of parallelism: where the groups are, what they cost, and which ranks are alike."""
