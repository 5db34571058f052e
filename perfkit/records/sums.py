"""Rows of records added up: over the traces of a rank, or the ranks of a run."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

RowT = TypeVar("RowT", bound=Struct)
Others = Callable[[Sequence[RowT]], dict[str, Any]]
"""What fields of several rows become that are not summed."""


def add_rows(
    rows: Iterable[RowT], key: Callable[[RowT], Hashable], sums: Sequence[str], others: Others[RowT] = lambda _: {}
) -> list[RowT]:
    """Return one row for all that have the same key, with the sums of fields and what others become."""
    groups: dict[Hashable, list[RowT]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    # Single rows are reused, so that with thousands of ranks few are copied.
    return [
        group[0] if len(group) == 1 else replace(group[0], **sums_of(group, sums), **others(group))
        for group in groups.values()
    ]


def add_largest(
    rows: Iterable[RowT],
    key: Callable[[RowT], Hashable],
    sums: Sequence[str],
    others: Others[RowT] = lambda _: {},
    *,
    most: int,
    order: Callable[[RowT], Any],
    rest: Mapping[str, object],
) -> list[RowT]:
    """Return rows as `add_rows` does, in order; all but the first `most` are added up with the fields `rest`.

    The first of these fields tells such rows, which may be among `rows`, and is None in rows that are always kept.
    """
    added = sorted(add_rows(rows, key, sums, others), key=order)
    name, mark = next(iter(rest.items()))
    listed = [row for row in added if getattr(row, name) not in (None, mark)]
    kept = {id(row) for row in (*listed[:most], *(row for row in added if getattr(row, name) is None))}
    small = (replace(row, **rest) for row in added if id(row) not in kept)
    return sorted((*(row for row in added if id(row) in kept), *add_rows(small, key, sums, others)), key=order)


def sums_of(rows: Sequence[Struct], names: Iterable[str]) -> dict[str, int]:
    """Return the sum of each of these fields."""
    return {name: sum(getattr(row, name) for row in rows) for name in names}


def add_all(records: Sequence[RowT]) -> RowT:
    """Return the sums of all fields of at least one record."""
    return replace(records[0], **sums_of(records, records[0].__struct_fields__))


def _longest(rows: Sequence[Struct]) -> dict[str, Any]:
    row = max(rows, key=attrgetter("max_ns"))
    return {name: getattr(row, name) for name in ("max_ns", "max_step", "max_at_ns")}


LONGEST: Final[Others[Any]] = _longest
"""The longest of all that rows sum up, and where it is."""
