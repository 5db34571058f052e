"""Where to find in a timeline what a row of a table sums up: slices of its name, and the longest of all ranks."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from perfkit.base.formatting import size
from perfkit.records.per_rank.work import WorkView
from perfkit.records.per_rank.work_trees import Path
from perfkit.records.rank import UNKNOWN_OPERATOR, CollectiveStat, OperatorStat, RankReport
from perfkit.records.run import RunReport
from perfkit.tables.specification import Instance

Stat = TypeVar("Stat", OperatorStat, CollectiveStat)
Key = TypeVar("Key", bound=Hashable)


def operator_instances(run: RunReport) -> Mapping[tuple[str, str], Instance]:
    """Return the longest kernel or operator of each name and category."""
    rows = ((rank, row) for rank in run.ranks for row in rank.operators)
    found = _longest(rows, lambda row: (row.name, row.category))
    on_host = {rank.rank for rank in run.ranks if rank.device == "cpu"}
    return {
        key: _instance(rank, row, row.name, "largest self time" if rank in on_host else "longest")
        for key, (rank, row) in found.items()
    }


def kernel_instances(run: RunReport) -> Mapping[str, Instance]:
    """Return the longest kernel or operator of each name."""
    found: dict[str, Instance] = {}
    for (name, _), instance in operator_instances(run).items():
        if name not in found or instance.ns > found[name].ns:
            found[name] = instance
    return found


def collective_instances(run: RunReport) -> Mapping[tuple[object, ...], Instance]:
    """Return the longest collective of each row of the table of collectives, by `collective_key`."""
    rows = ((rank, row) for rank in run.ranks for row in rank.collectives)
    return {
        key: _instance(rank, row, collective_title(row.operator, row.bytes, row.group_size))
        for key, (rank, row) in _longest(rows, collective_key).items()
    }


def work_instances(run: RunReport, view: WorkView) -> Mapping[Path, Instance]:
    """Return the longest kernel, copy or operator in each node of a tree of work: of a module or Python function."""
    found: dict[Path, Instance] = {}
    for rank in run.ranks:
        for tree in rank.work.trees if rank.work else ():
            path: Path = ()
            for node in tree.nodes if tree.by == view else ():
                path = (*path[: node.depth], node.name)
                if node.max_ns and (path not in found or node.max_ns > found[path].ns):
                    what = "largest self time in it" if rank.device == "cpu" else "longest kernel or copy in it"
                    found[path] = Instance(
                        node.name, what, node.max_ns, rank.rank, node.max_step, node.max_at_ns, is_inside=True
                    )
    return found


def collective_key(row: CollectiveStat) -> tuple[object, ...]:
    """Return what tells the rows of collectives apart."""
    return (row.operator, row.group, row.group_size, row.bytes, row.dtype, row.ddp_bucket, row.dimension)


def collective_title(operator: str, message_bytes: int | None, group_size: int | None) -> str:
    """Return what a collective is called in a timeline: operator, size, ranks of its group."""
    parts = ["collective" if operator == UNKNOWN_OPERATOR else operator]
    if message_bytes is not None:
        parts.append(size(message_bytes))
    if group_size:
        parts.append(f"over {group_size} ranks")
    return " ".join(parts)


def _longest(rows: Iterable[tuple[RankReport, Stat]], key: Callable[[Stat], Key]) -> dict[Key, tuple[int | None, Stat]]:
    found: dict[Key, tuple[int | None, Stat]] = {}
    for rank, row in rows:
        of_row = key(row)
        if of_row not in found or row.max_ns > found[of_row][1].max_ns:
            found[of_row] = (rank.rank, row)
    return found


def _instance(rank: int | None, row: OperatorStat | CollectiveStat, name: str, what: str = "longest") -> Instance:
    return Instance(name=name, what=what, ns=row.max_ns, rank=rank, step=row.max_step, at_ns=row.max_at_ns)
