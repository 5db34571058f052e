"""The tables of attributed time: by phase, module, Python function, operator and class, and by kernel."""

from collections.abc import Iterator
from typing import Any, Final

from perfkit.base.formatting import duration, escape_unprintable, format_percent
from perfkit.records.aggregate import MAJORITY, REPORTED_SHARE, add_operators
from perfkit.records.per_rank.work import KernelWork, Work, WorkNode, WorkTree, WorkView
from perfkit.records.per_rank.work_trees import Path, merge_work, paths_of
from perfkit.records.rank import OperatorStat
from perfkit.records.run import RunReport
from perfkit.tables.aggregates import steps_of
from perfkit.tables.instances import kernel_instances, operator_instances, work_instances
from perfkit.tables.kernel_names import LONGEST, shorten
from perfkit.tables.labels import INDENT, SHORT, counted, per_step
from perfkit.tables.specification import (
    RANK,
    RUN,
    Cell,
    Field,
    Instance,
    Listing,
    Table,
    data_of,
    joined,
    make_table,
    name,
    number,
    of_ranks,
    words,
)

"""Share of all work from which a node is shown."""
_TITLES: Final[dict[WorkView, str]] = {
    "class": "module",
    "python": "Python function",
    "operator": "operator",
    "module": "module and instance",
}
_SHOWN: Final[tuple[WorkView, ...]] = ("class", "module", "python", "operator")


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the tables of a run's work, and its kernels and operators."""
    work = merge_work(run.ranks)
    steps = len(steps_of(run))
    if work is not None and work.total_ns and steps:
        # Numbers of a class tell nobody which module it is, and are in the files only.
        trees = {tree.by: tree for tree in work.trees}
        yield _phases(work, steps)
        for view in _SHOWN:
            if view in trees and (view != "module" or work.has_module_names):
                yield _tree(run, work, trees[view], steps, top)
        yield _classes(work, steps)
        yield _kernels(run, work, steps, top)
    yield _operators(run, top)


def _what(work: Work) -> str:
    return "Device time" if work.on == "device" else "Operators' time"


def _share(work: Work) -> str:
    return "% of device time" if work.on == "device" else "% of operators"


def _time(title: str, key: str, steps: int) -> Field:
    """Return a column of a time per step; unknown where nothing ran."""

    def mean_ns(row: Any) -> float | None:
        time_ns: int = getattr(row, key)
        return time_ns / steps if time_ns else None

    return number(title, mean_ns, duration)


def _times(work: Work, steps: int, *more: str) -> list[Field]:
    """Return the columns of the time and its share, then those of `more`; on a device also of what is exposed."""
    return [
        _time("time", "total_ns", steps),
        number(_share(work), lambda row: row.total_ns / work.total_ns, format_percent),
        *(_time(part, f"{part}_ns", steps) for part in more),
        *([_time("exposed", "exposed_ns", steps)] if work.on == "device" else []),
    ]


def _count(title: str, steps: int) -> Field:
    return number(title, lambda row: per_step(row.count, steps) if row.count else None)


def _phases(work: Work, steps: int) -> Table | None:
    known = {part.phase for part in work.phases} - {"other", "unknown"}
    what = "kernels and copies" if work.on == "device" else "operators"
    columns = (words("phase", lambda row: row.phase), *_times(work, steps), _count(what, steps))
    return make_table(f"{_what(work)} by phase (mean per step and rank)", work.phases if known else [], columns)


def _classes(work: Work, steps: int) -> Table | None:
    what = "kernels" if work.on == "device" else "operators"
    columns = (words("class", lambda row: row.kernel_class), *_times(work, steps), _count(what, steps))
    title = f"{_what(work)} by class of {what} (mean per step and rank)"
    return make_table(title, work.classes, columns)


def _tree(run: RunReport, work: Work, tree: WorkTree, steps: int, top: int) -> Table | None:
    nodes, instances = _largest(work, tree, top), work_instances(run, tree.by)

    def cell(path: Path, node: WorkNode) -> Cell:
        text = INDENT * node.depth + shorten(escape_unprintable(node.name), LONGEST)
        return Cell(text, instance=instances.get(path, Instance(node.name)))

    cells = {id(node): cell(path, node) for path, node in nodes}
    columns = (
        Field(_TITLES[tree.by], lambda node: cells[id(node)], "name"),
        *_times(work, steps, "self", "forward", "backward"),
    )
    left = len(tree.nodes) - len(nodes)
    remark = joined(_where(run, work, tree), f"{left} more {'row' if left == 1 else 'rows'}" if left else "", by=". ")
    title = f"{_what(work)} by {_TITLES[tree.by]} (mean per step and rank; each row includes those below it)"
    return make_table(title, [node for _, node in nodes], columns, remark)


def _where(run: RunReport, work: Work, tree: WorkTree) -> str:
    """Return a sentence about the module or function that takes most of the time on every rank; empty without one."""
    if tree.by == "operator":
        return ""
    whole = paths_of(tree)
    found = [path for path, weights in whole.items() if weights.total_ns >= MAJORITY * work.total_ns]
    path = max(found, key=len, default=())
    shares = [_share_on(rank.work, tree.by, path) for rank in run.ranks if rank.work and rank.work.total_ns]
    if not path or path[-1].startswith("(") or min(shares, default=0.0) < MAJORITY:
        return ""
    weights = whole[path]
    where = " > ".join(map(escape_unprintable, path[-2:] if tree.by == "class" else path[-1:]))
    parts = [
        f"{phase} {format_percent(time_ns / work.total_ns)}"
        for phase, time_ns in (("forward", weights.forward_ns), ("backward", weights.backward_ns))
        if time_ns
    ]
    split = f" ({', '.join(parts)})" if parts else ""
    what = "device's" if work.on == "device" else "operators'"
    return f"{format_percent(weights.total_ns / work.total_ns)} of the {what} time is in {where}{split}"


def _share_on(work: Work, view: WorkView, path: Path) -> float:
    tree = next((tree for tree in work.trees if tree.by == view), None)
    weights = paths_of(tree).get(path) if tree else None
    return weights.total_ns / work.total_ns if weights else 0.0


def _largest(work: Work, tree: WorkTree, top: int) -> list[tuple[Path, WorkNode]]:
    """Return the nodes that are shown, by path, in the tree's order; none is larger than the one that it is in."""
    paths: list[Path] = [()]
    for node in tree.nodes:
        paths.append((*paths[-1][: node.depth], node.name))
    worth = [place for place, node in enumerate(tree.nodes) if node.total_ns >= REPORTED_SHARE * work.total_ns]
    ranked = sorted(worth, key=lambda place: (-tree.nodes[place].total_ns, place))[:top]
    return [(paths[place + 1], tree.nodes[place]) for place in sorted(ranked)]


def _kernels(run: RunReport, work: Work, steps: int, top: int) -> Table | None:
    """Return the kernels by operator and inputs; without a device only if inputs were recorded, else it is known."""
    if work.on == "host" and not any(row.inputs for row in work.kernels):
        return None
    instances, first = kernel_instances(run), "kernel" if work.on == "device" else "operator"

    def cell(row: KernelWork) -> Cell:
        return Cell(shorten(escape_unprintable(row.name), LONGEST), instance=instances.get(row.name))

    on_device = work.on == "device"
    columns = (
        Field(first, cell, "name"),
        *([name("launched by", lambda row: row.operator)] if on_device else []),
        name("inputs", lambda row: row.inputs),
        number("count", lambda row: per_step(row.count, steps)),
        _time("time", "total_ns", steps),
        number(_share(work), lambda row: row.total_ns / work.total_ns, format_percent),
        *(_LAUNCH if on_device else []),
    )
    remark = f"each {first} alone; for operators compared with the device's limits, see 'Operators by shape'"
    title = f"{_what(work)} by {first} and inputs (mean per step and rank)"
    return make_table(title, work.kernels, columns, remark if run.roofline else "", top=top)


_LAUNCH: Final = (
    number("grid", lambda row: row.grid, lambda grid: "x".join(map(str, grid))),
    number("occupancy", lambda row: row.occupancy_percent, lambda percent: f"{percent:.0f} %"),
)


def _operators(run: RunReport, top: int) -> Table | None:
    """Return kernels and operators by summed time over all ranks."""
    merged = add_operators(row for rank in run.ranks for row in rank.operators)
    wall_ns = sum(step.wall_ns for step in steps_of(run))
    instances = operator_instances(run)
    columns = (
        Field(
            "name", lambda row: Cell(escape_unprintable(row.name), instance=instances[row.name, row.category]), "name"
        ),
        words("kind", lambda row: SHORT[row.category]),
        number("count", lambda row: row.count, counted),
        number("total", lambda row: row.total_ns, duration),
        number("% of wall", lambda row: row.total_ns / wall_ns if wall_ns else None, format_percent),
        number("mean", lambda row: row.total_ns / row.count if row.count else None, duration),
    )
    left = merged[top:]
    remark = f"{len(left):,} more, {duration(sum(row.total_ns for row in left))} in total" if left else ""
    devices = {rank.device for rank in run.ranks}
    kinds = {"gpu": "kernels", "cpu": "operators by self time"}
    title = f"Top {' and '.join(kind for device, kind in kinds.items() if device in devices)}"
    title += f" (over {len(run.ranks)} ranks)" if len(run.ranks) > 1 else ""
    return make_table(title, merged, columns, remark, top=top)


LISTINGS: Final = {"operators": Listing(of_ranks(lambda rank: rank.operators), (RUN, RANK, *data_of(OperatorStat)))}
