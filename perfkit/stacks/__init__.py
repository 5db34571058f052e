"""`perfkit stacks`: whose time it is as call stacks, in files that flame graph viewers open."""
