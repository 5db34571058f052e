"""The ledger of a run's step: pieces of it, and the rows that they are booked on (metrics.md section 10)."""
