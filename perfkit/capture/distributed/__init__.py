"""Ranks: which launcher started them, how they meet, and what they agree on."""
