"""Builders for what ranks leave when they do not go on."""
