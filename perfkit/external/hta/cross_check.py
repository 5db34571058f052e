"""HTA's temporal breakdown beside perfkit's, and why they differ."""

from typing import Final

from msgspec.structs import replace

from perfkit.errors import LaunchEnvironmentError, PerfkitError
from perfkit.external.hta.runner import run_hta
from perfkit.schema.common import CATEGORIES, Finding
from perfkit.schema.external_tool import ExternalTable
from perfkit.schema.rank import RankReport
from perfkit.schema.run import CrossCheck, CrossCheckRow, RunReport

_ROUNDED_NS: Final = 2000
"""HTA moves the start of an event up and its end down to whole microseconds: so much is lost of each at most."""
_UNITS_NS: Final = 1000


def with_cross_check(run: RunReport) -> RunReport:
    """Return a run's report with HTA's breakdown, or with a finding that says why HTA has none.

    Raises:
        LaunchEnvironmentError: HTA is not installed.
    """
    if not run.ranks:
        return run
    try:
        table = run_hta(run, "temporal-breakdown")
    except LaunchEnvironmentError:
        raise
    except PerfkitError as error:
        failed = Finding(code="cross_check_failed", severity="warning", message=str(error))
        return replace(run, findings=[*run.findings, failed])
    return replace(run, cross_check=_beside(run, table))


def _beside(run: RunReport, table: ExternalTable) -> CrossCheck:
    said = {row["rank"]: row for row in (dict(zip(table.columns, values, strict=True)) for values in table.rows)}
    alone = len(run.ranks) == 1
    rows = []
    for rank in run.ranks:
        number = rank.rank or 0 if alone else rank.rank
        if number in said and rank.steps:
            rows.append(_row(number or 0, rank, {name: _ns(value) for name, value in said[number].items()}))
    return CrossCheck(tool=table.tool, rows=rows)


def _ns(value: object) -> int:
    return round(value * _UNITS_NS) if isinstance(value, int | float) else 0


def _row(number: int, rank: RankReport, theirs: dict[str, int]) -> CrossCheckRow:
    sums = {category: sum(getattr(step.exposed_ns, category) for step in rank.steps) for category in CATEGORIES}
    window = sum(sums.values())
    compute = sums["compute"]
    other = sums["communication"] + sums["memcpy"]
    return CrossCheckRow(
        rank=number,
        window_ns=window,
        compute_ns=compute,
        other_ns=other,
        idle_ns=window - compute - other,
        external_window_ns=theirs["kernel_time(us)"],
        external_compute_ns=theirs["compute_time(us)"],
        external_other_ns=theirs["non_compute_time(us)"],
        external_idle_ns=theirs["idle_time(us)"],
        rounding_ns=sum(rank.events.get(kind, 0) for kind in _DEVICE_KINDS) * _ROUNDED_NS,
    )


_DEVICE_KINDS: Final = ("kernel", "copy")
