"""Made records of memory: allocations of a trace, snapshots of the allocator."""
