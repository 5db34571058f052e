"""How much arithmetic and memory traffic operators need, from their recorded shapes, and how long they took."""
