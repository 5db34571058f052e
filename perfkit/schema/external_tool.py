"""What `perfkit hta` says. A change to it bumps `PEER_VERSION`."""

from typing import Final

from msgspec import Struct

PEER_VERSION: Final = 1


class PeerTable(Struct, frozen=True, kw_only=True):
    """A table of another program's, as it is."""

    schema_version: int = PEER_VERSION
    tool: str
    """Its package and version."""
    analysis: str
    run: str
    ranks: list[int]
    columns: list[str]
    rows: list[list[str | int | float | bool | None]]
