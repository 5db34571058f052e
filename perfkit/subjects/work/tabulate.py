"""Sum the work of a rank by module, function, operator, phase, class and kernel (metrics.md section 20)."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.call_paths import PathTable, PathTexts, group, sum_by
from perfkit.engine.attribution.classes import kernel_classes, named_classes, operator_classes
from perfkit.engine.attribution.items import Items
from perfkit.engine.attribution.views import Located
from perfkit.engine.kinds.classify import Device, Names
from perfkit.engine.steps.windows import Steps
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.work import (
    KERNEL_CLASSES,
    OTHERS,
    WORK_PHASES,
    WORK_VIEWS,
    ClassWork,
    KernelClass,
    KernelWork,
    Work,
    WorkPart,
    WorkTree,
    WorkView,
)
from perfkit.records.per_rank.work_trees import (
    MOST_KERNELS,
    MOST_NODES,
    Longest,
    Path,
    Weights,
    add_classes,
    build_tree,
    with_longest,
)
from perfkit.trace.events import Events, KernelLaunch
from perfkit.trace.intervals import Ints

_FORWARD: Final = WORK_PHASES.index("forward")
_BACKWARD: Final = WORK_PHASES.index("backward")


def tabulate_work(trace: TraceContext) -> Work | None:
    """Sum work by what it belongs to; None where the trace has no operators."""
    if trace.is_light:
        return None
    located, device = trace.located, trace.device
    items, classes = located.items, classes_of(located, trace.names, device)
    return Work(
        on="device" if len(device.row) else "host",
        count=int(items.count.sum()),
        total_ns=int(items.total_ns.sum()),
        exposed_ns=int(items.exposed_ns.sum()),
        communication_bytes=int(items.communication_bytes.sum()),
        phases=_phases(items, located.phase),
        trees=[_tree(located, view, trace.steps) for view in WORK_VIEWS if located.has(view)],
        classes=tabulate_classes(located, classes),
        kernels=tabulate_kernels(located, classes),
        has_modules=located.has("module"),
        has_module_names=bool(located.frames.modules),
    )


def _phases(items: Items, phase: Ints) -> list[WorkPart]:
    columns = (items.count, items.total_ns, items.exposed_ns, items.communication_bytes)
    sums = [sum_by(phase, column, len(WORK_PHASES)).tolist() for column in columns]
    return [
        WorkPart(phase=name, count=count, total_ns=total_ns, exposed_ns=exposed_ns, communication_bytes=size)
        for name, count, total_ns, exposed_ns, size in zip(WORK_PHASES, *sums, strict=True)
        if count or exposed_ns or size
    ]


def _tree(located: Located, view: WorkView, steps: Steps) -> WorkTree:
    table, items, phase = PathTable(), located.items, located.phase
    path = located.paths(view, table)
    size = len(table.parent)
    forward_ns = np.where(phase == _FORWARD, items.total_ns, 0)
    backward_ns = np.where(phase == _BACKWARD, items.total_ns, 0)
    columns = (items.count, items.total_ns, forward_ns, backward_ns, items.exposed_ns, items.communication_bytes)
    inclusive = [sum_by(path, column, size) for column in columns]
    parent = table.parent
    for level in _from_the_deepest(parent):
        for column in inclusive:
            np.add.at(column, parent[level], column[level])
    texts, chosen = PathTexts(table, located.texts), _largest(inclusive, parent)
    tree = build_tree(view, _weights(chosen, inclusive, parent, texts))
    if view == "operator":  # its operators have their own rows, which tell their longest
        return tree
    longest = zip(chosen.tolist(), _longest(items, path, parent)[chosen].tolist(), strict=True)
    found = {texts[k]: _place(items, item, located.events, steps) for k, item in longest if item >= 0}
    return with_longest(tree, found)


def _longest(items: Items, path: Ints, parent: Ints) -> Ints:
    """Return the longest item of each path and the paths below it, of equals the first; -1 without one."""
    longest = np.full(len(parent), -1, np.int64)
    known = np.flatnonzero(items.total_ns)
    # Of assignments to one place the last counts: shortest first.
    ordered = known[np.lexsort((-known, items.total_ns[known]))]
    longest[path[ordered]] = ordered
    ns = np.append(items.total_ns, 0)  # of item -1
    for level in _from_the_deepest(parent):
        up = level[np.argsort(ns[longest[level]], kind="stable")]
        best = np.full(len(parent), -1, np.int64)
        best[parent[up]] = longest[up]
        longest = np.where(ns[best] > ns[longest], best, longest)
    return longest


def _place(items: Items, item: int, events: Events, steps: Steps) -> Longest:
    """Return how long an item is, and where."""
    step = int(items.step[item])
    return int(items.total_ns[item]), steps.number[step], int(events.start_ns[items.row[item]] - steps.bounds[step])


def _largest(inclusive: list[Ints], parent: Ints) -> Ints:
    """Return the root, the largest paths and those above them, in order: a program may make millions of paths."""
    listed = np.lexsort((-inclusive[4], -inclusive[1]))[: MOST_NODES + 1]
    kept = {0}
    for number in listed.tolist():
        while number not in kept:
            kept.add(number)
            number = int(parent[number])
    return np.array(sorted(kept), np.int64)


def _weights(chosen: Ints, inclusive: list[Ints], parent: Ints, texts: PathTexts) -> dict[Path, Weights]:
    """Return what the chosen paths weigh, and of each the others below it."""
    place = np.full(len(parent), -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    below = np.flatnonzero(place[parent[1:]] >= 0) + 1
    others = below[place[below] < 0]
    rest = np.stack([sum_by(place[parent[others]], column[others], len(chosen)) for column in inclusive], axis=1)
    total = np.stack([column[chosen] for column in inclusive], axis=1)
    self_ns = total[:, 1] - sum_by(place[parent[below]], inclusive[1][below], len(chosen))
    found = {
        texts[k]: Weights._make([*weights, own_ns])
        for k, weights, own_ns in zip(chosen[1:].tolist(), total[1:].tolist(), self_ns[1:].tolist(), strict=True)
    }
    for row in np.flatnonzero(rest.any(axis=1)).tolist():
        found[*texts[int(chosen[row])], OTHERS] = Weights._make([*rest[row].tolist(), int(rest[row, 1])])
    return found


def _from_the_deepest(parent: Ints) -> list[Ints]:
    """Return the paths by depth, the deepest first, without the root."""
    depth = (parent >= 0).astype(np.int64)
    above = np.maximum(parent, 0)
    while above.any():  # `depth` is that below `above`, and doubles
        depth += depth[above]
        above = above[above]
    order = np.argsort(-depth, kind="stable")
    cuts = np.flatnonzero(np.diff(depth[order])) + 1
    return [level for level in np.split(order, cuts) if depth[level[0]] > 0]


# ---- kernels by class, and by name, operator and inputs --------------------------------------------------------------


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
    columns = (items.count, items.total_ns, items.exposed_ns)
    sums = [sum_by(classes[known], column[known], len(KERNEL_CLASSES)).tolist() for column in columns]
    rows = zip(KERNEL_CLASSES, *sums, strict=True)
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
    total_ns = sum_by(place, time_ns, len(keys))
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
