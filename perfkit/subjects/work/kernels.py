"""Sum kernels (without a device: operators) by class, and by name, operator and inputs."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.call_paths import group
from perfkit.engine.attribution.classes import kernel_classes, named_classes, operator_classes
from perfkit.engine.attribution.views import Located
from perfkit.engine.kinds.classify import Device, Names
from perfkit.records.per_rank.work import KERNEL_CLASSES, WORK_PHASES, ClassWork, KernelClass, KernelWork
from perfkit.records.per_rank.work_trees import MOST_KERNELS, add_classes
from perfkit.trace.events import KernelLaunch
from perfkit.trace.intervals import Ints

_LONGEST_INPUTS: Final = 300
"""Longer texts of inputs are shortened: an operator with hundreds of tensors."""
_PLACE: Final = {name: place for place, name in enumerate(KERNEL_CLASSES)}


def classes_of(located: Located, names: Names, device: Device) -> Ints:
    """Return the place in `KERNEL_CLASSES` of each item; -1 for issues of collectives."""
    events, row = located.events, located.items.row
    known = row >= 0
    found = np.full(len(row), -1, np.int64)
    operator = located.operator_row
    # Classes do not depend on the numbers in names.
    shape = events.shapes.of.astype(np.int64)[events.name]
    key = shape[row] * (len(events.shapes.distinct) + 1) + np.where(operator >= 0, shape[operator] + 1, 0)
    keys, place = group(key[known])
    on_device = bool(len(device.row))
    optimizer = located.phase[known] == WORK_PHASES.index("optimizer")
    classes = _classes_of_shapes(events.shapes.distinct, keys, on_device)[place]
    found[known] = np.where(optimizer & (classes != _PLACE["copy"]), _PLACE["optimizer"], classes)
    for given_name, given in names.given_class.items():
        found[known & (events.name[row] == given_name)] = _PLACE[given]
    if len(device.row):
        kinds: list[tuple[NDArray[np.bool_], KernelClass]] = [
            (device.is_copy, "copy"),
            (device.is_communication & ~device.is_copy, "communication"),
        ]
        for mask, name in kinds:
            found[np.isin(row, device.row[mask])] = _PLACE[name]
    else:
        communicates = names.communication_operator[events.name[np.maximum(row, 0)]] & known
        found[communicates] = _PLACE["communication"]
    return found


def _classes_of_shapes(shapes: Sequence[str], keys: Ints, on_device: bool) -> Ints:
    """Return the class of each key: a shape of names, and that of the operator at the launch."""
    name, operator = np.divmod(keys, len(shapes) + 1)
    if not on_device:
        return _of_used(shapes, name, operator_classes)
    by_operator = _of_used(("", *shapes), operator, operator_classes)  # 0 is no operator
    return kernel_classes(_of_used(shapes, name, named_classes), by_operator)


def _of_used(shapes: Sequence[str], places: Ints, classes: Callable[[Sequence[str]], Ints]) -> Ints:
    used, where = group(places)
    return classes([shapes[place] for place in used.tolist()])[where]


def tabulate_classes(located: Located, classes: Ints) -> list[ClassWork]:
    """Return the work of each class, largest time first; the rows add up to all work."""
    items = located.items
    known = classes >= 0
    count, total_ns, exposed_ns = (np.zeros(len(KERNEL_CLASSES), np.int64) for _ in range(3))
    columns = ((count, items.count), (total_ns, items.total_ns), (exposed_ns, items.exposed_ns))
    for total, values in columns:
        np.add.at(total, classes[known], values[known])
    rows = zip(KERNEL_CLASSES, count.tolist(), total_ns.tolist(), exposed_ns.tolist(), strict=True)
    return add_classes(
        ClassWork(kernel_class=name, count=number, total_ns=time_ns, exposed_ns=exclusive_ns)
        for name, number, time_ns, exclusive_ns in rows
        if number or exclusive_ns
    )


def tabulate_kernels(located: Located, classes: Ints) -> list[KernelWork]:
    """Return the kernels with the most time, by name, operator at the launch, and its inputs."""
    items, events = located.items, located.events
    chosen = np.flatnonzero((items.row >= 0) & (items.count > 0))
    row, operator, time_ns = items.row[chosen], located.operator_row[chosen], items.total_ns[chosen]
    operator_name = np.where(operator >= 0, events.name[operator], -1).astype(np.int64)
    inputs = events.operator_args.inputs_of(operator)
    names_of, by_name = group(events.name[row] * np.int64(len(events.names) + 1) + operator_name + 1)
    kinds, size = len(KERNEL_CLASSES), len(events.operator_args.distinct_inputs) + 1
    keys, place = group((by_name * size + inputs + 1) * kinds + classes[chosen])
    total_ns = np.zeros(len(keys), np.int64)
    np.add.at(total_ns, place, time_ns)
    best = np.argsort(-total_ns, kind="stable")[:MOST_KERNELS]
    # What is not listed is not summed further: there may be a million names.
    rank = np.full(len(keys), -1, np.int64)
    rank[best] = np.arange(len(best))
    place, keys, total_ns = rank[place], keys[best], total_ns[best]
    listed = place >= 0
    place, row = place[listed], row[listed]
    columns = np.divmod(names_of[keys // kinds // size], len(events.names) + 1)
    groups = np.stack([columns[0], columns[1] - 1, keys // kinds % size - 1, keys % kinds], axis=1)
    count, max_ns = np.bincount(place, minlength=len(best)), np.zeros(len(best), np.int64)
    np.maximum.at(max_ns, place, time_ns[listed])
    launches = _same_launches(events.device_args.launch_of(row), place, len(best))
    figures = zip(count.tolist(), total_ns.tolist(), max_ns.tolist(), strict=True)
    rows = zip(groups.tolist(), figures, launches.tolist(), strict=True)
    return [_kernel(located, group, each, launch) for group, each, launch in rows]


def _same_launches(launch: Ints, place: Ints, count: int) -> Ints:
    """Return the launch of each group, an index into the trace's; -1 if they differ or are unknown."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(first, place, launch)
    np.maximum.at(last, place, launch)
    return np.where(first == last, last, -1)


def _kernel(located: Located, group: list[int], figures: tuple[int, int, int], launch: int) -> KernelWork:
    events = located.events
    name, operator, inputs, kind = group
    text = events.operator_args.distinct_inputs[inputs].dims_text.decode("utf-8", "replace") if inputs >= 0 else None
    launched = events.device_args.launches[launch] if launch >= 0 else KernelLaunch()
    return KernelWork(
        name=events.names[name],
        kernel_class=KERNEL_CLASSES[kind],
        operator=events.names[operator] if operator >= 0 else None,
        inputs=text if text is None or len(text) <= _LONGEST_INPUTS else text[:_LONGEST_INPUTS] + "…",
        count=figures[0],
        total_ns=figures[1],
        max_ns=figures[2],
        grid=launched.grid,
        occupancy_percent=launched.occupancy_percent,
    )
