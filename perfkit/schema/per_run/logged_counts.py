"""How many processes of a run logged the same (metrics.md section 25)."""

from msgspec import Struct


class LoggedCount(Struct, frozen=True, kw_only=True):
    """A name and a value that processes logged: a version, a variable, a network with its adapters, or its provider."""

    name: str
    value: str
    processes: int
    """0 if the log does not name them."""
