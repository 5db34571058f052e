"""Changes between two benchmarks, and conditions on them (`--fail-on`), by the rules of `perfkit compare`.

A condition names a metric that several quantities may have: it holds if it holds for any of them. The intervals are
over repeats; with fewer than three on a side a change cannot be told from noise, and a condition on it cannot be
evaluated.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from perfkit.base.statistics.bootstrap import FEWEST_RUNS, ratio_interval
from perfkit.records.common import Observation, Severity
from perfkit.records.comparison import GateResult
from perfkit.records.facts import Statement, fact, statement
from perfkit.subjects.comparison.gates import TIMES, Decision, Gate, claims_a_change, result, undecided


class Kind(NamedTuple):
    """What a metric is."""

    noun: str
    """'bandwidth': what a quantity without a value does not have."""
    limit: str
    """An absolute limit in words: 'a number of GB/s'."""
    change: str
    """An example of a relative one."""
    is_time: bool
    scale: float
    """What a value is divided by before it is compared with a number."""
    show: Callable[[float], str]


class Quantity(NamedTuple):
    """What a condition compares."""

    what: str
    """What was measured."""
    value: float | None
    """None if it has no such value."""
    before: float | None
    """None if it is not in the earlier file."""
    significant: bool | None
    repeats: int
    """The smaller number of repeats of both sides."""


class RatioChange(NamedTuple):
    """Relative change of a time between two benchmarks."""

    ratio: float
    interval: tuple[float, float] | None
    significant: bool | None


def change_of(
    before: Sequence[float], after: Sequence[float], middles: tuple[float, float], assumed: float | None
) -> RatioChange:
    """Return the change between two sets of samples.

    Args:
        before: Samples of each repeat.
        after: The same.
        middles: Their medians.
        assumed: Relative change up to which a change counts as noise.
    """
    enough = min(len(before), len(after)) >= FEWEST_RUNS
    interval = ratio_interval(before, after) if enough else None
    ratio = middles[1] / middles[0]
    significant = None if interval is None else not interval[0] <= 1 <= interval[1]
    if assumed is not None:
        significant = significant is not False and abs(ratio - 1) > assumed
    return RatioChange(ratio, interval, significant)


def evaluate(gate: Gate, kind: Kind, quantities: Sequence[Quantity]) -> GateResult:
    """Return the worst outcome of a condition over `quantities`, of which there is at least one."""
    outcomes = [result(gate, _decide(gate, kind, one)) for one in quantities]
    return next(one for state in ("failed", "not_evaluated", "passed") for one in outcomes if one.state == state)


def unknown_metric(gate: Gate, available: Sequence[str]) -> GateResult:
    """Return the outcome of a condition on a metric that the benchmark does not have."""
    return result(gate, Decision(None, statement("no_metric", metric=gate.metric, available=available)))


def _decide(gate: Gate, kind: Kind, one: Quantity) -> Decision:
    if one.value is None:
        return Decision(None, statement("no_value", what=one.what, noun=kind.noun))
    if gate.relative:
        return _relative(gate, kind, one, one.value)
    if (gate.unit not in TIMES) if kind.is_time else gate.unit:
        needed = {"limit": kind.limit, "example": kind.change, "of_step": False}
        return Decision(None, statement("limit_needed", metric=gate.metric, **needed))
    return Decision(one.value / kind.scale, statement("measured", value=kind.show(one.value), what=one.what))


def _relative(gate: Gate, kind: Kind, one: Quantity, value: float) -> Decision:
    if not one.before:
        return Decision(None, statement("not_before", what=one.what))
    relative = (value - one.before) / one.before
    shown = {"before": kind.show(one.before), "after": kind.show(value)}
    measured = fact("changed_by", relative=relative, **shown, what=one.what)
    if one.significant is None:
        return undecided(measured, fact("noise_of_few_repeats", repeats=one.repeats, fewest=FEWEST_RUNS))
    if claims_a_change(gate, relative) and not one.significant:
        return undecided(measured, fact("within_repeats"))
    return Decision(relative, Statement(measured))


def find_few_repeats(repeats: int) -> Iterator[Observation]:
    """Yield a finding if so many repeats do not show how much times vary."""
    if repeats < FEWEST_RUNS:
        yield Observation("too_few_repeats", {"fewest": FEWEST_RUNS}, "benchmark", "info")


def find_shared_cores(hosts: Sequence[str], cores: Sequence[int | None]) -> Iterator[Observation]:
    """Yield a finding per host with more ranks than cores.

    Args:
        hosts: Host of each rank.
        cores: Cores of its host, of each rank; None if unknown.
    """
    for host, count in dict(zip(hosts, cores, strict=True)).items():
        ranks = hosts.count(host)
        if count is not None and ranks > count:
            yield Observation("oversubscribed", {"ranks": ranks, "host": host, "cores": count}, "benchmark")


def find_other_settings(before: Any, after: Any, names: Sequence[str], severity: Severity) -> Iterator[Observation]:
    """Yield a finding if fields of these names differ between two benchmarks."""
    values = {name: (getattr(before, name), getattr(after, name)) for name in names}
    if differing := {name: (old, new) for name, (old, new) in values.items() if old != new}:
        yield Observation("configurations_differ", {"settings": differing}, "benchmark", severity)


def find_other_versions(before: dict[str, str], after: dict[str, str]) -> Iterator[Observation]:
    """Yield a finding if software that both benchmarks used differs."""
    versions = {name: (old, after[name]) for name, old in before.items() if after.get(name, old) != old}
    if versions:
        yield Observation("versions_differ", {"versions": versions}, "benchmark")
