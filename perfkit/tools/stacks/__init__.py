"""`perfkit stacks`: attributed time as call stacks, in files that flame graph viewers open."""
