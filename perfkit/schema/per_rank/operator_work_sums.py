"""Add up the work of operators over calls, traces and ranks, with a limit on the number of rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from perfkit.schema.per_rank.operator_work import (
    OTHER_OPERATORS,
    ModuleWork,
    OperatorWork,
    RankWork,
    UnmodelledOperator,
)

MOST_OPERATORS: Final = 200
"""Most operators with their shapes that are listed, besides one row per kind and type for all others."""
MOST_UNMODELLED: Final = 50
"""Most operators without a model that are listed, besides one row per reason for all others."""

MOST_MODULES: Final = 50
MOST_WORK: Final = 2**63 - 1
"""A sum beyond it is damage; it would not fit the column of a file."""


def add_operator_work(rows: Iterable[OperatorWork]) -> list[OperatorWork]:
    """Return one row per operator, shapes and type, largest time first; of many, the smaller are added by kind."""
    added = sorted(_add(rows, keep_operators=True), key=_by_time)
    listed = [row for row in added if row.operator != OTHER_OPERATORS]
    others = [row for row in added if row.operator == OTHER_OPERATORS]
    rest = _add((*listed[MOST_OPERATORS:], *others), keep_operators=False)
    return sorted((*listed[:MOST_OPERATORS], *rest), key=_by_time)


def _by_time(row: OperatorWork) -> tuple[int, str, str, str]:
    return -row.total_ns, row.operator, row.shapes, row.dtype or ""


def _add(rows: Iterable[OperatorWork], *, keep_operators: bool) -> list[OperatorWork]:
    groups: dict[tuple[object, ...], list[OperatorWork]] = defaultdict(list)
    for row in rows:
        which = (row.operator, row.shapes) if keep_operators else (OTHER_OPERATORS, "")
        groups[row.kind, *which, row.dtype, row.tensor_cores].append(row)
    return [_sum(group, keep_operators=keep_operators) for group in groups.values()]


def _sum(group: Sequence[OperatorWork], *, keep_operators: bool) -> OperatorWork:
    first = group[0]
    return OperatorWork(
        kind=first.kind,
        operator=first.operator if keep_operators else OTHER_OPERATORS,
        shapes=first.shapes if keep_operators else "",
        dtype=first.dtype,
        tensor_cores=first.tensor_cores,
        count=sum(row.count for row in group),
        total_ns=sum(row.total_ns for row in group),
        flops=min(sum(row.flops for row in group), MOST_WORK),
        bytes=min(sum(row.bytes for row in group), MOST_WORK),
    )


def add_unmodelled(rows: Iterable[UnmodelledOperator]) -> list[UnmodelledOperator]:
    """Return one row per operator and reason, largest time first; of many, the smaller are added by reason."""
    added = sorted(_add_by_name(rows, keep_names=True), key=lambda row: (-row.total_ns, row.operator))
    listed = [row for row in added if row.operator != OTHER_OPERATORS]
    others = [row for row in added if row.operator == OTHER_OPERATORS]
    rest = _add_by_name((*listed[MOST_UNMODELLED:], *others), keep_names=False)
    return sorted((*listed[:MOST_UNMODELLED], *rest), key=lambda row: (-row.total_ns, row.operator))


def _add_by_name(rows: Iterable[UnmodelledOperator], *, keep_names: bool) -> list[UnmodelledOperator]:
    groups: dict[tuple[str, str], list[UnmodelledOperator]] = defaultdict(list)
    for row in rows:
        groups[row.operator if keep_names else OTHER_OPERATORS, row.reason].append(row)
    return [
        UnmodelledOperator(
            operator=name,
            reason=group[0].reason,
            count=sum(row.count for row in group),
            total_ns=sum(row.total_ns for row in group),
        )
        for (name, _), group in groups.items()
    ]


def add_modules(rows: Iterable[ModuleWork]) -> list[ModuleWork]:
    """Return one row per path of modules, largest time first; of many, the largest."""
    groups: dict[tuple[str, ...], list[ModuleWork]] = defaultdict(list)
    for row in rows:
        groups[tuple(row.path)].append(row)
    added = [
        ModuleWork(
            path=list(path),
            total_ns=sum(row.total_ns for row in group),
            flops={
                name: min(sum(row.flops.get(name, 0) for row in group), MOST_WORK)
                for name in dict.fromkeys(name for row in group for name in row.flops)
            },
        )
        for path, group in groups.items()
    ]
    return sorted(added, key=lambda row: (-row.total_ns, row.path))[:MOST_MODULES]


def add_rank_work(works: Iterable[RankWork | None]) -> RankWork | None:
    """Return the work of several traces or ranks; None if it is unknown for any, or there are none."""
    listed = list(works)
    known = [work for work in listed if work is not None]
    if not known or len(known) < len(listed):
        return None
    return RankWork(
        total_ns=sum(work.total_ns for work in known),
        operators=add_operator_work(row for work in known for row in work.operators),
        unmodelled=add_unmodelled(row for work in known for row in work.unmodelled),
        modules=add_modules(row for work in known for row in work.modules),
    )
