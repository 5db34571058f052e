"""Measure what a device can do (`perfkit peaks`): matrix products by data type and size, and its memory's bandwidth."""
