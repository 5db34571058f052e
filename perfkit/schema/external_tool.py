"""Result of `perfkit hta`. A change to it bumps `EXTERNAL_TABLE_VERSION`."""

from typing import Final

from msgspec import Struct

EXTERNAL_TABLE_VERSION: Final = 2


class ExternalTable(Struct, frozen=True, kw_only=True):
    """A table of another tool, unchanged."""

    schema_version: int = EXTERNAL_TABLE_VERSION
    tool: str
    """The tool's package and version."""
    analysis: str
    run: str
    ranks: list[int]
    columns: list[str]
    rows: list[list[str | int | float | bool | None]]
