"""What `perfkit hta` says. A change to it bumps `EXTERNAL_TABLE_VERSION`."""

from typing import Final

from msgspec import Struct

EXTERNAL_TABLE_VERSION: Final = 2


class ExternalTable(Struct, frozen=True, kw_only=True):
    """A table of another program's, as it is."""

    schema_version: int = EXTERNAL_TABLE_VERSION
    tool: str
    """Its package and version."""
    analysis: str
    run: str
    ranks: list[int]
    columns: list[str]
    rows: list[list[str | int | float | bool | None]]
