"""Compare HTA's temporal breakdown with perfkit's."""

from typing import Any, Final

from perfkit.external.cross_checks import CrossCheckTool
from perfkit.external.hta.runner import installed, run_hta
from perfkit.schema.aggregate import exposed_sums
from perfkit.schema.external_tool import ExternalTable
from perfkit.schema.rank import RankReport
from perfkit.schema.run import CrossCheck, CrossCheckRow, RunReport

_ROUNDED_NS: Final = 2000
"""HTA rounds the start of an event up and its end down to whole microseconds: each loses this much at most."""
_NS_PER_US: Final = 1000
_DEVICE_KINDS: Final = ("kernel", "copy")


def cross_check(run: RunReport) -> CrossCheck:
    """Return HTA's temporal breakdown of each rank, with perfkit's.

    Raises:
        ExternalToolError: HTA crashed, or cannot analyse the traces.
        LaunchEnvironmentError: HTA is not installed.
        UsageError: the ranks of the traces are unknown, or a rank has several traces.
    """
    return _compare(run, run_hta(run, "temporal-breakdown", count_events=True))


HTA: Final = CrossCheckTool(check_installed=installed, run=cross_check)


def _compare(run: RunReport, table: ExternalTable) -> CrossCheck:
    by_rank = {row["rank"]: row for row in (dict(zip(table.columns, values, strict=True)) for values in table.rows)}
    is_only_rank = len(run.ranks) == 1
    rows = []
    for rank in run.ranks:
        number = rank.rank or 0 if is_only_rank else rank.rank
        if number in by_rank and rank.steps:
            rows.append(_row(number or 0, rank, by_rank[number]))
    return CrossCheck(tool=table.tool, rows=rows)


def _ns(value: object) -> int:
    return round(value * _NS_PER_US) if isinstance(value, int | float) else 0


def _row(number: int, rank: RankReport, hta: dict[str, Any]) -> CrossCheckRow:
    hta_ns = {name: _ns(value) for name, value in hta.items()}
    sums = exposed_sums(rank.steps)
    window = sum(sums.values())
    is_device = rank.device == "gpu"
    compute = sums["compute"]
    other = sums["communication"] + sums["memcpy"]
    return CrossCheckRow(
        rank=number,
        window_ns=window,
        compute_ns=compute,
        other_ns=other,
        idle_ns=window - compute - other,
        external_window_ns=hta_ns["kernel_time(us)"],
        external_compute_ns=hta_ns["compute_time(us)"],
        external_other_ns=hta_ns["non_compute_time(us)"],
        external_idle_ns=hta_ns["idle_time(us)"],
        device_events=sum(row.count for row in rank.operators) if is_device else None,
        external_device_events=hta.get("device_events"),
        computing_events=sum(row.count for row in rank.operators if row.category == "compute") if is_device else None,
        external_computing_events=hta.get("computing_events"),
        external_synchronisations=hta.get("synchronisations", 0),
        external_host_events=hta.get("host_events", 0),
        rounding_ns=_largest_rounding(rank),
    )


def _largest_rounding(rank: RankReport) -> int:
    """Return by how much HTA's rounding can change a sum (ns); times of whole microseconds it leaves as they are."""
    if all(ns % _NS_PER_US == 0 for step in rank.steps for ns in exposed_sums([step]).values()):
        return 0
    return sum(rank.events.get(kind, 0) for kind in _DEVICE_KINDS) * _ROUNDED_NS
