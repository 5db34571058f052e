"""Sum the work of a rank by module, Python function, operator, phase and class (metrics.md section 20)."""

from typing import Final

import numpy as np

from perfkit.engine.attribution.call_paths import PathTable, PathTexts, sum_by
from perfkit.engine.attribution.items import Items
from perfkit.engine.attribution.views import Located
from perfkit.engine.kinds.classify import Device, Names
from perfkit.engine.steps.windows import Steps
from perfkit.records.per_rank.work import OTHERS, WORK_PHASES, WORK_VIEWS, Work, WorkPart, WorkTree, WorkView
from perfkit.records.per_rank.work_trees import MOST_NODES, Longest, Path, Weights, build_tree, with_longest
from perfkit.subjects.work.kernels import classes_of, tabulate_classes, tabulate_kernels
from perfkit.trace.events import Events
from perfkit.trace.intervals import Ints

_FORWARD: Final = WORK_PHASES.index("forward")
_BACKWARD: Final = WORK_PHASES.index("backward")


def tabulate_work(located: Located, names: Names, device: Device, steps: Steps) -> Work:
    """Sum work by what it belongs to."""
    items, classes = located.items, classes_of(located, names, device)
    return Work(
        on="device" if len(device.row) else "host",
        count=int(items.count.sum()),
        total_ns=int(items.total_ns.sum()),
        exposed_ns=int(items.exposed_ns.sum()),
        communication_bytes=int(items.communication_bytes.sum()),
        phases=_phases(items, located.phase),
        trees=[_tree(located, view, steps) for view in WORK_VIEWS if located.has(view)],
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
