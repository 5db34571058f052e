"""Bounded trees of work: built from sums by path, and added up over traces and ranks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from perfkit.records.per_rank.work import (
    KERNEL_CLASSES,
    OTHERS,
    WORK_PHASES,
    WORK_VIEWS,
    ClassWork,
    KernelWork,
    Work,
    WorkNode,
    WorkPart,
    WorkTree,
    WorkView,
)
from perfkit.records.rank import RankReport
from perfkit.records.sums import add_rows, sums_of

MOST_NODES: Final = 60
"""Most nodes of a tree that are kept, besides one for the others of each node."""
MOST_KERNELS: Final = 30
"""Most rows of kernels that are kept; the classes have all of them."""

_FIELDS: Final = (
    "count",
    "total_ns",
    "forward_ns",
    "backward_ns",
    "exposed_ns",
    "communication_bytes",
    "self_ns",
)
"""Fields of a node, in the order of `Weights`."""

Path = tuple[str, ...]


class Weights(NamedTuple):
    """What a path weighs; everything but `self_ns` includes the paths that continue it."""

    counted: int = 0
    total_ns: int = 0
    forward_ns: int = 0
    backward_ns: int = 0
    exposed_ns: int = 0
    communication_bytes: int = 0
    self_ns: int = 0

    def plus(self, other: "Weights") -> "Weights":
        """Return the sum."""
        return Weights(*(one + two for one, two in zip(self, other, strict=True)))


def build_tree(view: WorkView, inclusive: Mapping[Path, Weights]) -> WorkTree:
    """Return the tree of all paths; of many, the children with less time are added up as `(others)`."""
    ranked = sorted(
        inclusive, key=lambda path: (-inclusive[path].total_ns, -inclusive[path].exposed_ns, len(path), path)
    )
    named = [path for path in ranked if path[-1] != OTHERS][:MOST_NODES]
    kept = {path[:length] for path in named for length in range(1, len(path) + 1)}
    children: dict[Path, list[tuple[Path, Weights]]] = defaultdict(list)
    left: dict[Path, list[Weights]] = defaultdict(list)
    for path in ranked:
        if path in kept:
            children[path[:-1]].append((path, inclusive[path]))
        else:
            left[path[:-1]].append(inclusive[path])
    for parent, weights in left.items():
        rest = _sum(weights)
        children[parent].append(((*parent, OTHERS), rest._replace(self_ns=rest.total_ns)))
    nodes: list[WorkNode] = []
    stack = children[()][::-1]
    while stack:
        path, own = stack.pop()
        nodes.append(_node(path, own))
        stack += children[path][::-1]
    return WorkTree(by=view, nodes=nodes)


def _sum(weights: Iterable[Weights]) -> Weights:
    total = Weights()
    for one in weights:
        total = total.plus(one)
    return total


def _node(path: Path, weights: Weights) -> WorkNode:
    return WorkNode(depth=len(path) - 1, name=path[-1], **dict(zip(_FIELDS, weights, strict=True)))


def paths_of(tree: WorkTree) -> dict[Path, Weights]:
    """Return what each path of a tree weighs."""
    found: dict[Path, Weights] = {}
    path: Path = ()
    for node in tree.nodes:
        path = (*path[: node.depth], node.name)
        found[path] = Weights(*(getattr(node, name) for name in _FIELDS))
    return found


Longest = tuple[int, int | None, int | None]
"""`max_ns`, `max_step` and `max_at_ns` of a node."""


def with_longest(tree: WorkTree, longest: Mapping[Path, Longest]) -> WorkTree:
    """Return a tree whose nodes have the longest kernel, copy or operator of their paths."""
    nodes: list[WorkNode] = []
    path: Path = ()
    for node in tree.nodes:
        path = (*path[: node.depth], node.name)
        max_ns, step, at_ns = longest.get(path, (0, None, None))
        nodes.append(replace(node, max_ns=max_ns, max_step=step, max_at_ns=at_ns) if max_ns else node)
    return WorkTree(by=tree.by, nodes=nodes)


def add_trees(trees: Sequence[WorkTree]) -> WorkTree:
    """Return the sum of trees of one view."""
    if len(trees) == 1:
        return trees[0]
    total: dict[Path, list[int]] = {}
    longest: dict[Path, Longest] = {}
    for tree in trees:
        path: Path = ()
        for node in tree.nodes:
            path = (*path[: node.depth], node.name)
            sums = total.setdefault(path, [0] * len(_FIELDS))
            # In place and by name: with thousands of ranks there are millions of nodes.
            sums[0] += node.count
            sums[1] += node.total_ns
            sums[2] += node.forward_ns
            sums[3] += node.backward_ns
            sums[4] += node.exposed_ns
            sums[5] += node.communication_bytes
            sums[6] += node.self_ns
            if node.max_ns and (path not in longest or node.max_ns > longest[path][0]):
                longest[path] = (node.max_ns, node.max_step, node.max_at_ns)
    added = build_tree(trees[0].by, {path: Weights._make(sums) for path, sums in total.items()})
    return with_longest(added, longest) if longest else added


def add_work(works: Iterable[Work | None]) -> Work | None:
    """Return the work of several traces or ranks; None if that of one is unknown, or if it is of different kinds."""
    listed = list(works)
    known = [work for work in listed if work is not None]
    if not known or len(known) < len(listed) or len({work.on for work in known}) > 1:
        return None
    if len(known) == 1:
        return known[0]
    trees = {view: [tree for work in known for tree in work.trees if tree.by == view] for view in WORK_VIEWS}
    return Work(
        on=known[0].on,
        **sums_of(known, ("count", "total_ns", "exposed_ns", "communication_bytes")),
        phases=_add_phases(part for work in known for part in work.phases),
        # A view that some ranks lack would show the time of the others as all of it.
        trees=[add_trees(same) for same in trees.values() if len(same) == len(known)],
        classes=add_classes(row for work in known for row in work.classes),
        kernels=add_kernels(row for work in known for row in work.kernels),
        has_modules=all(work.has_modules for work in known),
        has_module_names=all(work.has_module_names for work in known),
    )


def _add_phases(parts: Iterable[WorkPart]) -> list[WorkPart]:
    added = add_rows(parts, attrgetter("phase"), ("count", "total_ns", "exposed_ns", "communication_bytes"))
    return sorted(added, key=lambda part: WORK_PHASES.index(part.phase))


def add_classes(rows: Iterable[ClassWork]) -> list[ClassWork]:
    """Return one row per class, largest time first."""
    added = add_rows(rows, attrgetter("kernel_class"), ("count", "total_ns", "exposed_ns"))
    return sorted(added, key=lambda row: (-row.total_ns, KERNEL_CLASSES.index(row.kernel_class)))


def add_kernels(rows: Iterable[KernelWork]) -> list[KernelWork]:
    """Return one row per name, operator and inputs, largest time first."""
    added = add_rows(rows, attrgetter("name", "operator", "inputs"), ("count", "total_ns"), _longest_and_launch)
    return sorted(added, key=lambda row: (-row.total_ns, row.name, row.operator or "", row.inputs or ""))[:MOST_KERNELS]


def _longest_and_launch(rows: Sequence[KernelWork]) -> dict[str, Any]:
    grids, occupancies = {row.grid for row in rows}, {row.occupancy_percent for row in rows}
    return {
        "max_ns": max(row.max_ns for row in rows),
        "grid": rows[0].grid if len(grids) == 1 else None,
        "occupancy_percent": rows[0].occupancy_percent if len(occupancies) == 1 else None,
    }


def merge_work(ranks: Iterable[RankReport]) -> Work | None:
    """Return the work over all ranks; None if it is unknown for any that has steps."""
    return add_work(rank.work for rank in ranks if rank.steps)
