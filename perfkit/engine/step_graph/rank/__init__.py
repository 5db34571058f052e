"""The graph of one rank's steps, before it is joined with those of the other ranks (metrics.md section 16)."""
