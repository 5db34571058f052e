"""What the records have in common: categories, units and findings."""

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

Category = Literal["compute", "communication", "memcpy", "data_loading", "overhead"]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
"""In the order in which they claim an instant (metrics.md section 4)."""
Severity = Literal["info", "warning", "error"]
Nanoseconds = Annotated[int, Meta(description="nanoseconds")]


class Finding(Struct, frozen=True, kw_only=True):
    """Something about the data that a reader must know before trusting the numbers."""

    code: str
    severity: Severity
    message: str
    rank: int | None = None
    file: str | None = None
