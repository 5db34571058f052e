"""One record a collective: what it was, how large, how long, and how much of it nothing hid (METRICS section 5).

On a device a collective is a communication kernel, joined through its launch to the host events that describe it. On
the CPU it is the backend's annotation (`gloo:all_reduce`), which spans the wait for the other ranks; its size stands
beside it when shapes were recorded, else in the list of collectives that perfkit's session wrote into the trace's
header.
"""

from collections import defaultdict
from math import prod
from typing import Any, NamedTuple

import numpy as np

from perfkit.analysis import rules
from perfkit.analysis.breakdown import Activity
from perfkit.analysis.classify import Device, Names, at_launch, communicating_candidates
from perfkit.analysis.steps import Steps
from perfkit.model import CollectiveStat
from perfkit.totals import add_collectives
from perfkit.trace.events import CollectiveArgs, Events, Kind, RecordedCollective
from perfkit.trace.intervals import Ints, earliest_share, measure


class Description(NamedTuple):
    """What is known of a collective; the key of the table."""

    operator: str
    group: str | None = None
    group_size: int | None = None
    bytes: int | None = None
    dtype: str | None = None


class Collectives(NamedTuple):
    """Collectives of one trace, in order of their start; columns of shape (c,)."""

    start: Ints
    end: Ints
    exposed: Ints
    description: list[Description]


def find_collectives(
    events: Events,
    names: Names,
    device: Device,
    activity: Activity,
    steps: Steps,
    recorded: list[RecordedCollective],
) -> tuple[Collectives, bool]:
    """Return the collectives within the steps, and whether the recorded sizes (if any) fitted what the trace shows."""
    fitted = True
    if len(device.row):
        chosen = np.flatnonzero(device.is_communication & (steps.device_step >= 0))
        chosen = chosen[np.argsort(events.start_ns[device.row[chosen]], kind="stable")]
        rows = device.row[chosen]
        description = _describe_kernels(events, names, rows, device.launch_row[chosen])
    else:
        rows, description, fitted = _host_collectives(events, names, recorded)
        inside = steps.within(events.start_ns[rows])
        description = [description[k] for k in np.flatnonzero(inside).tolist()]
        rows = rows[inside]
    start, end = events.start_ns[rows], events.end_ns[rows]
    return Collectives(start, end, _exposed(start, end, activity, steps), description), fitted


def _exposed(start: Ints, end: Ints, activity: Activity, steps: Steps) -> Ints:
    """Return each collective's own exposed time: an instant at which several run is the earliest started's."""
    own = earliest_share(start, end)
    first = np.clip(own.start, steps.bounds[0], steps.bounds[-1])
    last = np.clip(own.end, steps.bounds[0], steps.bounds[-1])
    return (last - first) - measure(activity.compute, first, last)


# ---- on a device ---------------------------------------------------------------------------------------------------


def _describe_kernels(events: Events, names: Names, rows: Ints, launch_row: Ints) -> list[Description]:
    candidates = communicating_candidates(events, names)
    communicating = candidates[names.communication_operator[events.name[candidates]]]
    with_args = np.array([row for row in communicating.tolist() if _says_size(events.collectives.get(row))], np.int64)
    described_by = at_launch(events, launch_row, with_args)
    issued_by = at_launch(events, launch_row, communicating)
    return [
        _describe_kernel(events, *columns)
        for columns in zip(rows.tolist(), described_by.tolist(), issued_by.tolist(), strict=True)
    ]


def _says_size(args: CollectiveArgs | None) -> bool:
    return args is not None and args.in_elements is not None


def _describe_kernel(events: Events, row: int, described_by: int, issued_by: int) -> Description:
    """Describe a kernel by its own metadata, else by the operator's that launched it, else by names alone."""
    own = events.collectives.get(row)
    args = own if _says_size(own) else events.collectives.get(described_by)
    kernel_name = events.names[events.name[row]]
    issuer_name = events.names[events.name[issued_by]] if issued_by >= 0 else ""
    said = (args.operator if args else None, issuer_name, kernel_name)
    operator = next((known for known in map(rules.collective_operator, filter(None, said)) if known), "unknown")
    if args is None:
        return _from_shapes(operator, events.collectives.get(issued_by))
    elements = args.out_elements if operator == "all_gather" else args.in_elements
    return Description(operator, args.group, args.group_size, _bytes(elements, args.dtype), _dtype(args.dtype))


def _bytes(elements: int | None, dtype: str | None) -> int | None:
    known = rules.DTYPES.get((dtype or "").lower())
    return None if elements is None or known is None else elements * known[1]


def _dtype(dtype: str | None) -> str | None:
    """Return perfkit's name of a type; what it does not know stays as the trace has it."""
    return rules.DTYPES.get(dtype.lower(), (dtype, 0))[0] if dtype else None


# ---- on the host ---------------------------------------------------------------------------------------------------


def _host_collectives(
    events: Events, names: Names, recorded: list[RecordedCollective]
) -> tuple[Ints, list[Description], bool]:
    """Return the rows of the backend's annotations by start, their descriptions, and whether `recorded` fitted them."""
    rows = np.flatnonzero((events.kind == Kind.ANNOTATION) & names.whole_span_annotation[events.name])
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    operators = [rules.collective_operator(events.names[name]) or "unknown" for name in events.name[rows].tolist()]
    matched = _match_recorded(events.start_ns[rows].tolist(), operators, recorded)
    described = [
        _from_record(operator, record) if record else _from_shapes(operator, events.collectives.get(row))
        for row, operator, record in zip(rows.tolist(), operators, matched, strict=True)
    ]
    return rows, described, not recorded or all(matched)


def _match_recorded(
    start_ns: list[int], operators: list[str], recorded: list[RecordedCollective]
) -> list[RecordedCollective | None]:
    """Join spans to the record of their issue.

    Both in order, operator by operator: the backend's queue is first in, first out. Where their numbers differ nothing
    is joined: a wrong size is worse than none.
    """
    queues: dict[str, list[RecordedCollective]] = defaultdict(list)
    for record in sorted(recorded, key=lambda record: record.ns):
        queues[rules.collective_operator(record.op) or "unknown"].append(record)
    matched: list[RecordedCollective | None] = [None] * len(start_ns)
    for operator, queue in queues.items():
        places = [k for k, name in enumerate(operators) if name == operator]
        if len(places) == len(queue):
            for place, record in zip(places, queue, strict=True):
                # A span cannot begin before its issue: then the two lists do not belong together after all.
                matched[place] = record if record.ns <= start_ns[place] else None
    return matched


def _from_record(operator: str, record: RecordedCollective) -> Description:
    return Description(operator, record.group, record.group_size, record.bytes, _dtype(record.dtype))


def _from_shapes(operator: str, args: CollectiveArgs | None) -> Description:
    """Describe a collective by the shapes and types that `record_shapes` puts beside it.

    They are those of this rank's input: the size of an all_gather is its output, which they do not say.
    """
    elements = _elements(args.input_dims) if args else None
    dtype = _first_text(args.input_type) if args else None
    size = None if operator == "all_gather" else _bytes(elements, dtype)
    return Description(operator, bytes=size, dtype=_dtype(dtype))


def _first_text(types: Any) -> str | None:
    return next((kind for kind in types if isinstance(kind, str) and kind), None) if isinstance(types, list) else None


def _elements(dims: Any) -> int | None:
    """Return the number of elements of a (nested) list of sizes, None where it is no such list."""
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(size, int) for size in dims):
        return prod(dims)
    return sum(filter(None, map(_elements, dims))) or None


# ---- the table -----------------------------------------------------------------------------------------------------


def tabulate_collectives(found: Collectives) -> list[CollectiveStat]:
    """Sum collectives of one kind, group, size and type."""
    columns = zip(found.description, (found.end - found.start).tolist(), found.exposed.tolist(), strict=True)
    return add_collectives(
        CollectiveStat(
            **description._asdict(), count=1, total_ns=duration_ns, exposed_ns=exposed_ns, max_ns=duration_ns
        )
        for description, duration_ns, exposed_ns in columns
    )
