"""The table of strategies: ways to share a model between the same ranks, at the same global batch."""

from collections.abc import Sequence

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.scaling import StrategyComparison, StrategyRow
from perfkit.util.formatting import MISSING, duration, escape_unprintable, format_percent, rate, size

_COMMUNICATION = " communication"
_MIN_SHARE = 0.005


def strategies(comparisons: Sequence[StrategyComparison]) -> list[Table]:
    """Return one table per comparison."""
    return [_table(comparison) for comparison in comparisons]


def _table(comparison: StrategyComparison) -> Table:
    times = [row.step_time for row in comparison.rows]
    tokens = all(time.tokens_per_s is not None for time in times)
    where = "without" if all(time.measured_on == "plain" for time in times) else "with"
    return Table(
        f"Strategies: {escape_unprintable(comparison.name)} ({comparison.world_size} ranks, "
        f"{comparison.samples_per_step} samples per step)",
        (
            Column("strategy", "words"),
            Column("n"),
            Column("step"),
            Column("tokens/s" if tokens else "samples/s"),
            Column("vs. fastest"),
            Column("memory"),
            Column("exposed communication", "words"),
        ),
        [_row(row, tokens) for row in comparison.rows],
        f"{escape_unprintable(comparison.sentence)}.\nstep: {where} the profiler; memory: parameters, gradients and "
        "optimizer state of the rank that holds most; exposed: share of the profiled step",
    )


def _row(row: StrategyRow, tokens: bool) -> tuple[Cell, ...]:
    samples = row.step_time.samples_per_s
    per_s = row.step_time.tokens_per_s if tokens else (samples.value if samples else None)
    interval = row.ratio.interval if row.ratio else None
    return (
        Cell(escape_unprintable(row.strategy)),
        Cell(str(len(row.step_time.runs))),
        Cell(duration(row.step_time.step_ns.value)),
        Cell(MISSING if per_s is None else rate(per_s, "").removesuffix(" /s")),
        Cell(
            "1" if row.ratio is None else f"{row.ratio.value:.2f}",
            "" if interval is None else f"{interval[0]:.2f}–{interval[1]:.2f}",
        ),
        Cell(size(row.memory_bytes)),
        Cell(_exposed(row)),
    )


def _exposed(row: StrategyRow) -> str:
    """Return the shares of the profiled step that communication is exposed in, by dimension, largest first."""
    whole = sum(row.parts_ns.values())
    parts = sorted(((ns, name) for name, ns in row.parts_ns.items() if name.endswith(_COMMUNICATION)), reverse=True)
    shown = [
        f"{escape_unprintable(name.removesuffix(_COMMUNICATION))} {format_percent(ns / whole)}"
        for ns, name in parts
        if whole and ns >= _MIN_SHARE * whole
    ]
    return ", ".join(shown) or MISSING
