"""Errors that mean that another rank is gone: they are never the first cause of a failure. Without torch."""

from typing import Final

_PARTS: Final = (
    "connection closed",
    "connection reset",
    "broken pipe",
    "connection refused",
    "remote process exited",
    "connection was likely closed",
    "lost the connection",
)
"""Parts of the error messages of gloo, NCCL, the store and perfkit's own collectives when a peer is gone."""


def is_lost_connection(message: str) -> bool:
    """Return whether an error message reports a lost connection to another rank."""
    text = message.lower()
    return any(part in text for part in _PARTS)
