"""Sizes of a step log; apart from its columns, since help needs these without numpy."""

from typing import Final

DEFAULT_MOST_BYTES: Final = 64 << 20
"""About 340,000 records."""
LEAST_MOST_BYTES: Final = 64 << 10
"""A smaller log would be rolled up all the time."""
