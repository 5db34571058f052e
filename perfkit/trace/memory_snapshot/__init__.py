"""Snapshots of memory that torch writes (`torch.cuda.memory._dump_snapshot`): pickles of plain values."""
