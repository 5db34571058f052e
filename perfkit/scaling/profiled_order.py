"""Findings where profiled steps put compared runs in another order than steps without the profiler do."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from perfkit.schema.aggregate import disagree, step_time_ns, traced_step_ns
from perfkit.schema.common import Finding
from perfkit.schema.run import RunReport
from perfkit.schema.scaling import OptionComparison, OptionRow
from perfkit.util.formatting import duration


def profiled_order_findings(runs: Sequence[RunReport], comparisons: Sequence[OptionComparison]) -> Iterator[Finding]:
    """Yield a finding per value of an option that only without the profiler is faster, or slower, than the baseline.

    Args:
        runs: all runs.
        comparisons: their comparisons by option.
    """
    profiled_ns = {run.run: step_time_ns(traced_step_ns(run.ranks).values()) for run in runs}
    for comparison in comparisons:
        first = comparison.rows[0]
        for row in comparison.rows[1:]:
            message = _message(comparison.option, first, row, profiled_ns)
            if row.step_time.measured_on == "plain" and message:
                yield Finding(code="profiled_step_disagrees", severity="warning", message=message)


def _message(option: str, first: OptionRow, row: OptionRow, profiled_ns: Mapping[str, float | None]) -> str | None:
    plain = (first.step_time.step_ns.value, row.step_time.step_ns.value)
    profiled = (_profiled(first, profiled_ns), _profiled(row, profiled_ns))
    if not (profiled[0] and profiled[1] and plain[0]) or not disagree(plain[1] / plain[0], profiled[1] / profiled[0]):
        return None
    faster, other = ("faster", "slower") if plain[1] < plain[0] else ("slower", "faster")
    return (
        f"{option}={row.value} is {faster} than {first.value} without the profiler ({duration(plain[1])} against "
        f"{duration(plain[0])} per step) and {other} with it ({duration(profiled[1])} against "
        f"{duration(profiled[0])} per profiled step): the profiler's cost differs, so compare the steps without it"
    )


def _profiled(row: OptionRow, profiled_ns: Mapping[str, float | None]) -> float | None:
    known = [ns for name in row.step_time.runs if (ns := profiled_ns.get(name)) is not None]
    return median(known) if len(known) == len(row.step_time.runs) else None
