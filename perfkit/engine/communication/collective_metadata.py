"""Identify collectives (operator, group, size, dtype) from the metadata of their events, once per distinct value."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.dtypes import DTYPES
from perfkit.records.rank import UNKNOWN_OPERATOR
from perfkit.records.trace_header import RecordedCollective
from perfkit.trace.events import CollectiveArgs, Events
from perfkit.trace.intervals import Ints

_NAMES: Final[tuple[tuple[str, str], ...]] = (
    (r"all_?reduce|cross_device_reduce_\dstage", "all_reduce"),
    (r"all_?to_?all", "all_to_all"),
    (r"reduce_?scatter", "reduce_scatter"),
    (r"all_?gather", "all_gather"),
    (r"broadcast", "broadcast"),
    (r"barrier", "barrier"),
    (r"send_?recv|batch_isend_irecv", "send_recv"),
    (r"recv", "recv"),
    (r"send", "send"),
    (r"gather", "gather"),
    (r"scatter", "scatter"),
    (r"reduce", "reduce"),
    (r"dispatch", "dispatch"),
    (r"combine", "combine"),
)
"""What a collective is called, in whatever spelling, and perfkit's name of it; longer names before their parts."""
OPERATORS: Final = tuple(name for _, name in _NAMES)
"""Columns of operators hold indices into this; -1 if unknown."""

_OUTPUT_IS_TOTAL: Final = ("all_gather", "gather")
"""Operators whose size S is the total output over ranks; for the others it is one rank's input."""
_LARGEST_BYTES: Final = 2**53
"""No message is larger; a larger number is corrupt."""
_LARGEST_SUM: Final = 2**62
AT_ONCE: Final = 1 << 16
_MOST_DIMENSIONS: Final = 64
"""Torch's own limit."""


class CollectiveKey(NamedTuple):
    """Identity of a collective; the key of tables."""

    operator: str
    group: str | None = None
    group_size: int | None = None
    bytes: int | None = None
    dtype: str | None = None
    ddp_bucket: bool = False
    members: str | None = None
    """The group's ranks as written in the trace, because groups of one name may differ in them. Not part of tables."""
    dimension: str | None = None
    """Dimension of parallelism that it serves, such as `tp`; None if unknown."""
    peer: int | None = None
    """Rank on the other side of a send or receive; None if unknown. Not part of tables."""

    def as_columns(self) -> dict[str, Any]:
        """Return the fields that are columns of tables."""
        return {name: value for name, value in self._asdict().items() if name not in ("members", "peer")}


@lru_cache(maxsize=1024)
def collective_operator(name: str) -> str | None:
    """Return perfkit's name of the collective in a kernel's, operator's or annotation's name; None if it names none."""
    plain = name.lower()
    return next((operator for pattern, operator in _NAMES if re.search(pattern, plain)), None)


def flagged(kinds: Sequence[CollectiveKey], kind: Ints, wanted: Callable[[CollectiveKey], bool]) -> NDArray[np.bool_]:
    """Return of which collectives the kind is wanted; `kind` has the index of each into `kinds`."""
    return np.array([wanted(one) for one in kinds] or [False], np.bool_)[kind]


def operators(names: Iterable[str | None]) -> Ints:
    """Return the operator of each name."""
    by_name = [collective_operator(name) if name else None for name in names]
    return np.array([OPERATORS.index(operator) if operator else -1 for operator in by_name], np.int64)


def operators_of(events: Events, rows: Ints) -> Ints:
    """Return the operator of each row's event, by its name; -1 for no row (-1)."""
    distinct, place = np.unique(events.name[rows], return_inverse=True)
    return np.where(rows >= 0, operators(events.names[number] for number in distinct.tolist())[place], -1)


def operator_name(operator: int) -> str:
    """Return the name of an operator index."""
    return OPERATORS[operator] if operator >= 0 else UNKNOWN_OPERATOR


def intern_descriptions(describe: Callable[..., CollectiveKey], *deciding: Ints) -> tuple[list[CollectiveKey], Ints]:
    """Describe collectives, calling `describe` once per distinct combination of the columns' values.

    Args:
        describe: called with one value of each column.
        deciding: columns of shape (c,); integers >= -1, and the product of their ranges fits int64.

    Returns:
        The distinct descriptions in order of occurrence, and for each collective the index of its description.
    """
    indices: dict[CollectiveKey, int] = {}
    known: dict[tuple[int, ...], int] = {}
    kind = np.empty(len(deciding[0]), np.int64)
    for begin in range(0, len(kind), AT_ONCE):
        part = np.vstack([column[begin : begin + AT_ONCE] for column in deciding])
        key = np.zeros(part.shape[1], np.int64)
        for column in part:
            key = key * (column.max() + 2) + column + 1
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        numbers = np.empty_like(first)
        for which in np.argsort(first).tolist():
            decides = tuple(part[:, first[which]].tolist())
            if decides not in known:
                known[decides] = indices.setdefault(describe(*decides), len(indices))
            numbers[which] = known[decides]
        kind[begin : begin + AT_ONCE] = numbers[place]
    return list(indices), kind


def from_metadata(operator: str, args: CollectiveArgs) -> CollectiveKey:
    """Describe a collective from its metadata."""
    elements = args.out_elements if operator in _OUTPUT_IS_TOTAL else args.in_elements
    size = _bytes(elements, args.dtype)
    key = CollectiveKey(operator, args.group, args.group_size, size, _dtype(args.dtype), members=args.members)
    return key._replace(peer=args.peer)


def from_record(operator: str, record: RecordedCollective) -> CollectiveKey:
    """Describe a collective from the run's flight recorder."""
    size = record.bytes if record.bytes is not None and 0 <= record.bytes < _LARGEST_BYTES else None
    return CollectiveKey(operator, record.group, record.group_size, size, _dtype(record.dtype))


def message_sizes(kinds: Sequence[CollectiveKey], collectives: int) -> Ints:
    """Return the bytes of each kind of collective, with at least one entry; -1 if unknown.

    A size counts as unknown if a sum over so many collectives might not fit a column: no real one is that large.
    """
    most = _LARGEST_SUM // max(1, collectives)
    known = [one.bytes if one.bytes is not None and one.bytes <= most else -1 for one in kinds]
    return np.array(known or [-1], np.int64)


def from_shapes(operator: str, args: CollectiveArgs | None) -> CollectiveKey:
    """Describe a collective from the shapes and types recorded with `record_shapes`.

    They are those of this rank's input, so the size of an all_gather or gather, which is its output, stays unknown.
    """
    dims, dtype = (_first(args.input_dims), _first(args.input_type)) if args else (None, None)
    if not isinstance(dtype, str) or dtype.lower() not in DTYPES:
        return CollectiveKey(operator)
    size = None if operator in _OUTPUT_IS_TOTAL else _bytes(_elements(dims), dtype)
    return CollectiveKey(operator, bytes=size, dtype=_dtype(dtype))


def _bytes(elements: int | None, dtype: str | None) -> int | None:
    known = DTYPES.get((dtype or "").lower())
    size = None if elements is None or known is None else elements * known[1]
    return size if size is not None and 0 <= size < _LARGEST_BYTES else None


def _dtype(dtype: str | None) -> str | None:
    """Return perfkit's name of a dtype; unknown ones are unchanged."""
    return DTYPES.get(dtype.lower(), (dtype, 0))[0] if dtype else None


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, list) and values else None


def _elements(dims: Any) -> int | None:
    """Return the number of elements of a list of sizes; None if it is not such a list."""
    if not isinstance(dims, list) or not all(isinstance(size, int) and 0 <= size < 2**53 for size in dims):
        return None
    return prod(dims[:_MOST_DIMENSIONS])
