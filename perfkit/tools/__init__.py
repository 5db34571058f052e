"""Slices on top that use only public names of the rooms below."""
