"""The tables of attributed time: by phase, module, Python function, operator and class."""

from typing import Final

from perfkit.report.content.aggregates import steps_of
from perfkit.report.content.document import Cell, Column, Instance, Table
from perfkit.report.content.idle import per_step
from perfkit.report.content.instances import kernel_instances, work_instances
from perfkit.report.content.kernel_names import LONGEST, shorten
from perfkit.schema.per_rank.work import KernelWork, Work, WorkNode, WorkTree, WorkView
from perfkit.schema.per_rank.work_trees import Path, merge_work, paths_of
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, escape_unprintable, format_percent

_SMALLEST_SHARE: Final = 0.01
"""Share of all work from which a node is shown."""
_MOST: Final = 0.5
"""Share of the work, on every rank, from which a sentence names a module or function."""
INDENT: Final = "\u2003"
_TITLES: Final[dict[WorkView, str]] = {
    "class": "module",
    "python": "Python function",
    "operator": "operator",
    "module": "module and instance",
}
_SHOWN: Final[tuple[WorkView, ...]] = ("class", "module", "python", "operator")


def work_tables(run: RunReport, top: int) -> list[Table]:
    """Return the tables of a run's work; none if it is unknown or nothing."""
    work = merge_work(run.ranks)
    steps = len(steps_of(run))
    if work is None or not work.total_ns or not steps:
        return []
    # Numbers of a class tell nobody which module it is, and are in the files only.
    trees = {tree.by: tree for tree in work.trees}
    views = [view for view in _SHOWN if view in trees and (view != "module" or work.has_module_names)]
    shown = [_tree(run, work, trees[view], steps, top) for view in views]
    return [*_phases(work, steps), *shown, _classes(work, steps), *_kernels(run, work, steps, top)]


def _what(work: Work) -> str:
    return "Device time" if work.on == "device" else "Operators' time"


def _share(work: Work) -> str:
    return "% of device time" if work.on == "device" else "% of operators"


def _per_step(time_ns: int, steps: int) -> Cell:
    return Cell(duration(time_ns / steps) if time_ns else MISSING)


def _phases(work: Work, steps: int) -> list[Table]:
    if {part.phase for part in work.phases} <= {"other", "unknown"}:
        return []
    columns = [Column("phase", "words"), Column("time"), Column(_share(work))]
    columns += [Column("exposed")] if work.on == "device" else []
    columns += [Column("kernels and copies" if work.on == "device" else "operators")]
    rows = [
        (
            Cell(part.phase),
            _per_step(part.total_ns, steps),
            Cell(format_percent(part.total_ns / work.total_ns)),
            *([_per_step(part.exposed_ns, steps)] if work.on == "device" else []),
            Cell(per_step(part.count, steps) if part.count else MISSING),
        )
        for part in work.phases
    ]
    return [Table(f"{_what(work)} by phase (mean per step and rank)", tuple(columns), rows)]


def _tree(run: RunReport, work: Work, tree: WorkTree, steps: int, top: int) -> Table:
    nodes, instances = _largest(work, tree, top), work_instances(run, tree.by)
    title = f"{_what(work)} by {_TITLES[tree.by]} (mean per step and rank; each row includes those below it)"
    names = ("time", _share(work), "self", "forward", "backward", *(["exposed"] if work.on == "device" else []))
    rows = [_node_row(work, node, steps, instances.get(path, Instance(node.name))) for path, node in nodes]
    left = len(tree.nodes) - len(nodes)
    remarks = [_where(run, work, tree), f"{left} more {'row' if left == 1 else 'rows'}" if left else ""]
    columns = (Column(_TITLES[tree.by], "name"), *map(Column, names))
    return Table(title, columns, rows, ". ".join(filter(None, remarks)))


def _where(run: RunReport, work: Work, tree: WorkTree) -> str:
    """Return a sentence about the module or function that takes most of the time on every rank; empty without one."""
    if tree.by == "operator":
        return ""
    whole = paths_of(tree)
    found = [path for path, weights in whole.items() if weights.total_ns >= _MOST * work.total_ns]
    path = max(found, key=len, default=())
    shares = [_share_on(rank.work, tree.by, path) for rank in run.ranks if rank.work and rank.work.total_ns]
    if not path or path[-1].startswith("(") or min(shares, default=0.0) < _MOST:
        return ""
    weights = whole[path]
    name = " > ".join(map(escape_unprintable, path[-2:] if tree.by == "class" else path[-1:]))
    parts = [
        f"{phase} {format_percent(time_ns / work.total_ns)}"
        for phase, time_ns in (("forward", weights.forward_ns), ("backward", weights.backward_ns))
        if time_ns
    ]
    split = f" ({', '.join(parts)})" if parts else ""
    what = "device's" if work.on == "device" else "operators'"
    return f"{format_percent(weights.total_ns / work.total_ns)} of the {what} time is in {name}{split}"


def _share_on(work: Work, view: WorkView, path: Path) -> float:
    tree = next((tree for tree in work.trees if tree.by == view), None)
    weights = paths_of(tree).get(path) if tree else None
    return weights.total_ns / work.total_ns if weights else 0.0


def _largest(work: Work, tree: WorkTree, top: int) -> list[tuple[Path, WorkNode]]:
    """Return the nodes that are shown, by path, in the tree's order; none is larger than the one that it is in."""
    paths: list[Path] = [()]
    for node in tree.nodes:
        paths.append((*paths[-1][: node.depth], node.name))
    worth = [place for place, node in enumerate(tree.nodes) if node.total_ns >= _SMALLEST_SHARE * work.total_ns]
    ranked = sorted(worth, key=lambda place: (-tree.nodes[place].total_ns, place))[:top]
    return [(paths[place + 1], tree.nodes[place]) for place in sorted(ranked)]


def _node_row(work: Work, node: WorkNode, steps: int, longest: Instance) -> tuple[Cell, ...]:
    return (
        Cell(INDENT * node.depth + shorten(escape_unprintable(node.name), LONGEST), instance=longest),
        _per_step(node.total_ns, steps),
        Cell(format_percent(node.total_ns / work.total_ns)),
        _per_step(node.self_ns, steps),
        _per_step(node.forward_ns, steps),
        _per_step(node.backward_ns, steps),
        *([_per_step(node.exposed_ns, steps)] if work.on == "device" else []),
    )


def _classes(work: Work, steps: int) -> Table:
    what = "kernels" if work.on == "device" else "operators"
    columns = [Column("class", "words"), Column("time"), Column(_share(work))]
    columns += [Column("exposed")] if work.on == "device" else []
    rows = [
        (
            Cell(row.kernel_class),
            _per_step(row.total_ns, steps),
            Cell(format_percent(row.total_ns / work.total_ns)),
            *([_per_step(row.exposed_ns, steps)] if work.on == "device" else []),
            Cell(per_step(row.count, steps) if row.count else MISSING),
        )
        for row in work.classes
    ]
    return Table(f"{_what(work)} by class of {what} (mean per step and rank)", (*columns, Column(what)), rows)


def _kernels(run: RunReport, work: Work, steps: int, top: int) -> list[Table]:
    """Return the kernels by operator and inputs; without a device only if inputs were recorded, else it is known."""
    if work.on == "host" and not any(row.inputs for row in work.kernels):
        return []
    instances = kernel_instances(run)
    first = "kernel" if work.on == "device" else "operator"
    names = [Column(first, "name"), *([Column("launched by", "name")] if work.on == "device" else [])]
    numbers = ["count", "time", _share(work), *(["grid", "occupancy"] if work.on == "device" else [])]
    return [
        Table(
            f"{_what(work)} by {first} and inputs (mean per step and rank)",
            (*names, Column("inputs", "name"), *map(Column, numbers)),
            [_kernel_row(work, row, steps, instances.get(row.name)) for row in work.kernels[:top]],
            f"each {first} alone; for operators compared with the device's limits, see 'Operators by shape'"
            if run.roofline
            else "",
        )
    ]


def _kernel_row(work: Work, row: KernelWork, steps: int, longest: Instance | None) -> tuple[Cell, ...]:
    operator = MISSING if row.operator is None else escape_unprintable(row.operator)
    grid = MISSING if row.grid is None else "x".join(map(str, row.grid))
    occupancy = MISSING if row.occupancy_percent is None else f"{row.occupancy_percent:.0f} %"
    return (
        Cell(shorten(escape_unprintable(row.name), LONGEST), instance=longest),
        *([Cell(operator)] if work.on == "device" else []),
        Cell(MISSING if row.inputs is None else escape_unprintable(row.inputs)),
        Cell(per_step(row.count, steps)),
        _per_step(row.total_ns, steps),
        Cell(format_percent(row.total_ns / work.total_ns)),
        *([Cell(grid), Cell(occupancy)] if work.on == "device" else []),
    )
