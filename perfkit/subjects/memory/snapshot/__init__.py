"""What snapshots of memory tell: who holds it at the peak, and how it is divided."""
