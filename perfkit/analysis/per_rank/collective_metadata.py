"""What a collective was and how large, from what its events say; asked once for all that say the same."""

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from perfkit.analysis.per_rank import name_patterns as rules
from perfkit.schema.trace_header import RecordedCollective
from perfkit.trace.events import CollectiveArgs, Events
from perfkit.trace.intervals import Ints
from perfkit.util.dtypes import DTYPES

OPERATORS: Final = tuple(name for _, name in rules.OPERATORS)
"""A column of operators has indices into it; -1 for what is not known."""

_OUTPUT_IS_TOTAL: Final = ("all_gather", "gather")
"""Operators whose size S is what the ranks have together afterwards; of the others, what a rank puts in."""
_LARGEST_BYTES: Final = 2**53
"""No message has so many: a number beyond it is damage."""
_AT_ONCE: Final = 1 << 16
_MOST_DIMENSIONS: Final = 64
"""As many as torch allows."""


class CollectiveKey(NamedTuple):
    """What is known of a collective; the key of the table."""

    operator: str
    group: str | None = None
    group_size: int | None = None
    bytes: int | None = None
    dtype: str | None = None
    ddp_bucket: bool = False
    members: str | None = None
    """The group's ranks as the trace writes them: groups of one name may have different ones. Not part of tables."""

    def as_columns(self) -> dict[str, Any]:
        """Return what tells rows of tables apart."""
        return {name: value for name, value in self._asdict().items() if name != "members"}


def operators(names: Iterable[str | None]) -> Ints:
    """Return the operator that each name tells."""
    found = [rules.collective_operator(name) if name else None for name in names]
    return np.array([OPERATORS.index(operator) if operator else -1 for operator in found], np.int64)


def operators_of(events: Events, rows: Ints) -> Ints:
    """Return the operator that the name of each row's event tells; that of no row (-1) is not known."""
    seen, place = np.unique(events.name[rows], return_inverse=True)
    return np.where(rows >= 0, operators(events.names[number] for number in seen.tolist())[place], -1)


def operator_name(operator: int) -> str:
    """Return what an operator of a column is called."""
    return OPERATORS[operator] if operator >= 0 else "unknown"


def intern_descriptions(describe: Callable[..., CollectiveKey], *deciding: Ints) -> tuple[list[CollectiveKey], Ints]:
    """Describe all collectives of which some columns decide what they are.

    Args:
        describe: called with a value of each column, once for all collectives of which these are the same.
        deciding: the columns, of shape (c,); integers from -1 on, whose ranges multiplied fit int64.

    Returns:
        the descriptions, each once, in the order in which they occur, and for each collective the index of its own.
    """
    found: dict[CollectiveKey, int] = {}
    known: dict[tuple[int, ...], int] = {}
    kind = np.empty(len(deciding[0]), np.int64)
    for begin in range(0, len(kind), _AT_ONCE):
        part = np.vstack([column[begin : begin + _AT_ONCE] for column in deciding])
        key = np.zeros(part.shape[1], np.int64)
        for column in part:
            key = key * (column.max() + 2) + column + 1
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        numbers = np.empty_like(first)
        for which in np.argsort(first).tolist():
            decides = tuple(part[:, first[which]].tolist())
            if decides not in known:
                known[decides] = found.setdefault(describe(*decides), len(found))
            numbers[which] = known[decides]
        kind[begin : begin + _AT_ONCE] = numbers[place]
    return list(found), kind


def from_metadata(operator: str, args: CollectiveArgs) -> CollectiveKey:
    """Describe a collective by its metadata."""
    elements = args.out_elements if operator in _OUTPUT_IS_TOTAL else args.in_elements
    size = _bytes(elements, args.dtype)
    return CollectiveKey(operator, args.group, args.group_size, size, _dtype(args.dtype), members=args.members)


def from_record(operator: str, record: RecordedCollective) -> CollectiveKey:
    """Describe a collective by what the run's own recorder saw."""
    return CollectiveKey(operator, record.group, record.group_size, record.bytes, _dtype(record.dtype))


def from_shapes(operator: str, args: CollectiveArgs | None) -> CollectiveKey:
    """Describe a collective by the shapes and types that `record_shapes` puts beside it.

    They are those of this rank's input: the total of an all_gather or a gather is its output, which they do not say.
    """
    dims, dtype = (_first(args.input_dims), _first(args.input_type)) if args else (None, None)
    if not isinstance(dtype, str) or dtype.lower() not in DTYPES:
        return CollectiveKey(operator)
    size = None if operator in _OUTPUT_IS_TOTAL else _bytes(_elements(dims), dtype)
    return CollectiveKey(operator, bytes=size, dtype=_dtype(dtype))


def with_ddp_flag(description: CollectiveKey, *, in_hook: bool) -> CollectiveKey:
    """Return the description, as that of a bucket of DDP's if an all_reduce was issued from the hook of a gradient."""
    return description._replace(ddp_bucket=in_hook and description.operator == "all_reduce")


def _bytes(elements: int | None, dtype: str | None) -> int | None:
    known = DTYPES.get((dtype or "").lower())
    size = None if elements is None or known is None else elements * known[1]
    return size if size is not None and 0 <= size < _LARGEST_BYTES else None


def _dtype(dtype: str | None) -> str | None:
    """Return perfkit's name of a type; what it does not know stays as the trace has it."""
    return DTYPES.get(dtype.lower(), (dtype, 0))[0] if dtype else None


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, list) and values else None


def _elements(dims: Any) -> int | None:
    """Return the number of elements of a list of sizes, None where it is no such list."""
    if not isinstance(dims, list) or not all(isinstance(size, int) and 0 <= size < 2**53 for size in dims):
        return None
    return prod(dims[:_MOST_DIMENSIONS])
