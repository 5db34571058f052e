"""Ranks: which launcher started them, how they find each other, and what they exchange."""
