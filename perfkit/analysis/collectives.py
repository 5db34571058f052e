"""One record a collective: what it was, how large, how long, and how much of it nothing hid (METRICS section 5).

On a device a collective is a communication kernel, joined through its launch to the host events that describe it. On
the CPU it is the backend's annotation (`gloo:all_reduce`), which spans the wait for the other ranks; its size stands
beside it when shapes were recorded, else in the list of collectives that perfkit's session wrote into the trace's
header.
"""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from perfkit.analysis import rules
from perfkit.analysis.breakdown import Activity
from perfkit.analysis.classify import Device, Names, at_launch, communicating_candidates
from perfkit.analysis.issues import in_gradient_hook, issues_of
from perfkit.analysis.steps import Steps
from perfkit.model.rank import CollectiveStat
from perfkit.totals import add_collectives
from perfkit.trace.events import CollectiveArgs, Events, Kind, RecordedCollective
from perfkit.trace.intervals import Ints, earliest_share, measure, uncovered_from


class Description(NamedTuple):
    """What is known of a collective; the key of the table."""

    operator: str
    group: str | None = None
    group_size: int | None = None
    bytes: int | None = None
    dtype: str | None = None
    ddp_bucket: bool = False
    members: str | None = None
    """The group's ranks as the trace writes them: groups of one name may have different ones. Not part of tables."""

    def shown(self) -> dict[str, Any]:
        """Return what tells rows of tables apart."""
        return {name: value for name, value in self._asdict().items() if name != "members"}


class Collectives(NamedTuple):
    """Collectives of one trace, in order of their start; columns of shape (c,)."""

    start: Ints
    end: Ints
    exposed: Ints
    description: list[Description]
    step: Ints
    """Index of the step it belongs to."""
    issued: Ints
    """When the host issued it; where that is not recorded, when it started."""
    sequence: Ints
    """Its number in its process group; -1 where the trace does not say."""
    blocked: Ints
    """When its exposed part begins: from there on nothing hides it; -1 where something hid the whole of it."""


def find_collectives(
    events: Events,
    names: Names,
    device: Device,
    activity: Activity,
    steps: Steps,
    recorded: list[RecordedCollective],
) -> tuple[Collectives, bool]:
    """Return the collectives within the steps, and whether the recorded sizes (if any) fitted what the trace shows."""
    if len(device.row):
        return _device_collectives(events, names, device, activity, steps), True
    return _host_collectives(events, names, activity, steps, recorded)


def _exposed(start: Ints, end: Ints, activity: Activity, steps: Steps) -> tuple[Ints, Ints]:
    """Return each span's own exposed time, and when that begins (-1 where there is none).

    An instant at which several run is the earliest started's. To be asked about all communication at once, also what
    belongs to no step: it may hold an instant of a step.
    """
    own = earliest_share(start, end)
    first = np.clip(own.start, steps.bounds[0], steps.bounds[-1])
    last = np.clip(own.end, steps.bounds[0], steps.bounds[-1])
    exposed = (last - first) - measure(activity.compute, first, last)
    return exposed, np.where(exposed > 0, uncovered_from(activity.compute, first), -1)


# ---- on a device ---------------------------------------------------------------------------------------------------


def _device_collectives(events: Events, names: Names, device: Device, activity: Activity, steps: Steps) -> Collectives:
    chosen = np.flatnonzero(device.is_communication)
    chosen = chosen[np.argsort(events.start_ns[device.row[chosen]], kind="stable")]
    rows = device.row[chosen]
    exposed, blocked = _exposed(events.start_ns[rows], events.end_ns[rows], activity, steps)
    inside = np.flatnonzero(steps.device_step[chosen] >= 0)
    described = _describe_kernels(events, names, rows[inside], device.launch_row[chosen[inside]])
    groups: dict[tuple[int, int], list[int]] = {}
    for place, (_, source) in zip(inside.tolist(), described, strict=True):
        groups.setdefault((source, int(steps.device_step[chosen[place]])), []).append(place)
    description = {source: what for what, source in described}
    parts = list(groups.values())
    launches = np.array([device.launch_row[chosen[part[0]]] for part in parts], np.int64)
    in_hook = in_gradient_hook(events, launches).tolist()
    never = np.iinfo(np.int64).max
    first_blocked = [int(np.where(blocked[part] >= 0, blocked[part], never).min()) for part in parts]
    return Collectives(
        start=np.array([events.start_ns[rows[part]].min() for part in parts], np.int64),
        end=np.array([events.end_ns[rows[part]].max() for part in parts], np.int64),
        exposed=np.array([exposed[part].sum() for part in parts], np.int64),
        description=[_marked(description[source], hook) for (source, _), hook in zip(groups, in_hook, strict=True)],
        step=np.array([step for _, step in groups], np.int64),
        issued=np.array([device.launched_ns[chosen[part]].min() for part in parts], np.int64),
        sequence=np.array([_sequence(events.collectives.get(source)) for source, _ in groups], np.int64),
        blocked=np.array([-1 if instant == never else instant for instant in first_blocked], np.int64),
    )


def _sequence(args: CollectiveArgs | None) -> int:
    return -1 if args is None or args.sequence is None else args.sequence


def _describe_kernels(events: Events, names: Names, rows: Ints, launch_row: Ints) -> list[tuple[Description, int]]:
    """Return what each kernel is, and the row that says so.

    Kernels that one host event describes are one collective (oneCCL launches several). A kernel that carries its own
    metadata, or that nothing describes, is one by itself.
    """
    communicating = communicating_candidates(events, names) & names.communication_operator[events.name]

    def innermost(says: Callable[[CollectiveArgs], bool]) -> list[int]:
        telling = np.zeros(len(communicating), np.bool_)
        telling[[row for row, args in events.collectives.items() if says(args)]] = True
        found: list[int] = at_launch(events, launch_row, telling & communicating).tolist()
        return found

    counted = innermost(lambda args: args.in_elements is not None)
    # The dims of a `c10d::*` operator are those of all its arguments, outputs too.
    shaped = innermost(lambda args: args.input_dims is not None and not args.is_dispatch)
    issued = at_launch(events, launch_row, communicating).tolist()
    return [_describe_kernel(events, *columns) for columns in zip(rows.tolist(), counted, shaped, issued, strict=True)]


def _describe_kernel(events: Events, row: int, counted: int, shaped: int, issued: int) -> tuple[Description, int]:
    """Describe a kernel by its own metadata, else by the operator's that launched it, else by names alone."""
    own = events.collectives.get(row)
    source = row if own is not None and own.in_elements is not None else counted
    args = events.collectives.get(source)
    said = (args.operator if args else None, _name(events, issued), _name(events, row))
    operator = next((known for known in map(rules.collective_operator, filter(None, said)) if known), "unknown")
    if args is None:
        return _from_shapes(operator, events.collectives.get(shaped)), shaped if shaped >= 0 else row
    elements = args.out_elements if operator in _OUTPUT_IS_TOTAL else args.in_elements
    size = _bytes(elements, args.dtype)
    described = Description(operator, args.group, args.group_size, size, _dtype(args.dtype), members=args.members)
    return described, source


_OUTPUT_IS_TOTAL: Final = ("all_gather", "gather")
"""Operators whose size S is what the ranks have together afterwards; of the others, what a rank puts in."""


def _name(events: Events, row: int) -> str | None:
    return events.names[events.name[row]] if row >= 0 else None


def _bytes(elements: int | None, dtype: str | None) -> int | None:
    known = rules.DTYPES.get((dtype or "").lower())
    size = None if elements is None or known is None else elements * known[1]
    return size if size is not None and 0 <= size < _LARGEST_BYTES else None


_LARGEST_BYTES: Final = 2**53
"""No message has so many: a number beyond it is damage."""


def _dtype(dtype: str | None) -> str | None:
    """Return perfkit's name of a type; what it does not know stays as the trace has it."""
    return rules.DTYPES.get(dtype.lower(), (dtype, 0))[0] if dtype else None


# ---- on the host ---------------------------------------------------------------------------------------------------


def _host_collectives(
    events: Events, names: Names, activity: Activity, steps: Steps, recorded: list[RecordedCollective]
) -> tuple[Collectives, bool]:
    rows = np.flatnonzero((events.kind == Kind.ANNOTATION) & names.whole_span_annotation[events.name])
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    start, end = events.start_ns[rows], events.end_ns[rows]
    operators = [rules.collective_operator(events.names[name]) or "unknown" for name in events.name[rows].tolist()]
    matched = _match_recorded(start.tolist(), end.tolist(), operators, recorded)
    issues = issues_of(events, start, operators)
    columns = zip(rows.tolist(), operators, matched, in_gradient_hook(events, issues).tolist(), strict=True)
    description = [
        _marked(_from_record(operator, record) if record else _from_shapes(operator, events.collectives.get(row)), hook)
        for row, operator, record, hook in columns
    ]
    inside = np.flatnonzero(steps.within(start))
    exposed, blocked = _exposed(start, end, activity, steps)
    known = [record if record is not None and record.seq is not None else None for record in matched]
    seen = np.where(issues >= 0, events.start_ns[issues], start)
    issued = np.array([r.ns if r else s for r, s in zip(matched, seen.tolist(), strict=True)], np.int64)
    sequence = np.array([record.seq if record else -1 for record in known], np.int64)
    found = Collectives(
        start=start[inside],
        end=end[inside],
        exposed=exposed[inside],
        description=[description[k] for k in inside.tolist()],
        step=np.searchsorted(steps.bounds, start[inside], side="right") - 1,
        issued=issued[inside],
        sequence=sequence[inside],
        blocked=blocked[inside],
    )
    return found, not recorded or all(matched)


def _match_recorded(
    start_ns: list[int], end_ns: list[int], operators: list[str], recorded: list[RecordedCollective]
) -> list[RecordedCollective | None]:
    """Join spans to the record of their issue.

    Both in order, operator by operator: the backend's queue is first in, first out. Where their numbers differ nothing
    is joined: a wrong size is worse than none. Nor where collectives of several groups, each of which has a queue of
    its own, run at once: then one may have overtaken another.
    """
    queues: dict[str, list[RecordedCollective]] = defaultdict(list)
    for record in sorted(recorded, key=lambda record: record.ns):
        queues[rules.collective_operator(record.op) or "unknown"].append(record)
    matched: list[RecordedCollective | None] = [None] * len(start_ns)
    for operator, queue in queues.items():
        places = [k for k, name in enumerate(operators) if name == operator]
        # A span cannot begin before its issue: then the two lists do not belong together after all.
        fits = len(places) == len(queue) and all(r.ns <= start_ns[k] for k, r in zip(places, queue, strict=True))
        at_once = any(start_ns[after] < end_ns[before] for before, after in pairwise(places))
        if fits and not (at_once and len({record.group for record in queue}) > 1):
            for place, record in zip(places, queue, strict=True):
                matched[place] = record
    return matched


def _from_record(operator: str, record: RecordedCollective) -> Description:
    return Description(operator, record.group, record.group_size, record.bytes, _dtype(record.dtype))


def _from_shapes(operator: str, args: CollectiveArgs | None) -> Description:
    """Describe a collective by the shapes and types that `record_shapes` puts beside it.

    They are those of this rank's input: the total of an all_gather or a gather is its output, which they do not say.
    """
    dims, dtype = (_first(args.input_dims), _first(args.input_type)) if args else (None, None)
    if not isinstance(dtype, str) or dtype.lower() not in rules.DTYPES:
        return Description(operator)
    size = None if operator in _OUTPUT_IS_TOTAL else _bytes(_elements(dims), dtype)
    return Description(operator, bytes=size, dtype=_dtype(dtype))


def _marked(description: Description, in_hook: bool) -> Description:
    return description._replace(ddp_bucket=in_hook and description.operator == "all_reduce")


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, list) and values else None


def _elements(dims: Any) -> int | None:
    """Return the number of elements of a list of sizes, None where it is no such list."""
    if not isinstance(dims, list) or not all(isinstance(size, int) and 0 <= size < 2**53 for size in dims):
        return None
    return prod(dims[:_MOST_DIMENSIONS])


_MOST_DIMENSIONS: Final = 64
"""As many as torch allows."""


# ---- the table -----------------------------------------------------------------------------------------------------


def tabulate_collectives(found: Collectives) -> list[CollectiveStat]:
    """Sum collectives of one kind, group, size and type."""
    columns = zip(found.description, (found.end - found.start).tolist(), found.exposed.tolist(), strict=True)
    return add_collectives(
        CollectiveStat(**description.shown(), count=1, total_ns=duration_ns, exposed_ns=exposed_ns, max_ns=duration_ns)
        for description, duration_ns, exposed_ns in columns
    )
