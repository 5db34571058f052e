"""Synthetic memory records: allocations of a trace, snapshots of the allocator."""
