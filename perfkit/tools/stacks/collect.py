"""Collect the stacks of a run's work, rank by rank, with what each weighs."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perfkit.base.parsing import Ranges
from perfkit.engine.attribution.stacks import BYS, By, Stack, Weight, stacks_of
from perfkit.engine.kinds.kernel_rules import add_rule_uses, unused_rules
from perfkit.engine.runs.rank_reports import assign_ranks, group_by_rank
from perfkit.engine.steps.windows import numbered_in_run
from perfkit.engine.trace_context import TraceContext
from perfkit.engine.trace_summary import MOST_STEPS, check_markers
from perfkit.errors import UsageError
from perfkit.pipeline.load_run import load_run
from perfkit.pipeline.summarize import Options
from perfkit.records.kernel_rules import KernelRuleUse
from perfkit.records.rank import RankReport
from perfkit.report.wording.findings import word_all
from perfkit.storage.discovery import find_run
from perfkit.trace.reader import read_trace


class RankStacks(NamedTuple):
    """The stacks of one rank, with their sums, largest first."""

    name: str
    stacks: dict[Stack, int]


class Stacks(NamedTuple):
    """The stacks of a run."""

    weight: Weight
    by: By
    ranks: list[RankStacks]
    warnings: list[str]
    """What is lost of damaged traces."""

    @property
    def total(self) -> int:
        """Sum over all stacks: nanoseconds or bytes."""
        return sum(sum(rank.stacks.values()) for rank in self.ranks)


class Selection(NamedTuple):
    """What to collect; None for what the traces suggest, or for all."""

    weight: Weight | None = None
    by: By | None = None
    ranks: Ranges | None = None
    steps: Ranges | None = None
    reading: Options = Options()


def collect_stacks(path: Path, selection: Selection) -> Stacks:
    """Return the stacks of a run or trace.

    Raises:
        TraceError: a trace cannot be read, or has neither steps nor work.
        UsageError: the traces have nothing for the weight or view, or no such rank or step, or are of several jobs.
    """
    check_markers(selection.reading.step_marker, selection.reading.data_marker)
    location = find_run(path)
    reports = _reports(path, selection) if len(location.traces) > 1 and not location.has_manifest else []
    of_rank = {report.rank: report.steps for report in reports}
    weight, by = selection.weight, selection.by
    found: dict[str, defaultdict[Stack, int]] = {}
    ranks, steps = set[int](), set[int]()
    warnings: list[str] = []
    uses: list[list[KernelRuleUse]] = []
    for file, number, work, damage in _located(location.traces, selection.reading):
        uses.append(work.names.rule_uses)
        if number is not None:
            ranks.add(number)
        if selection.ranks is not None and (number is None or number not in selection.ranks):
            continue
        work.steps = numbered_in_run(work.steps, of_rank.get(number, ()))
        warnings += (f"{file.name}: {what}" for what in damage)
        steps |= {step for step in work.steps.number if step is not None}
        # The first trace decides for all: their sums are of one kind.
        weight = weight or ("device" if work.has_device else "host")
        by = by or _first_recorded(work)
        _check_recorded(weight, by, work, file)
        sums = found.setdefault(file.name if number is None else f"rank {number}", defaultdict(int))
        for stack, value in stacks_of(work, weight, by, selection.steps).items():
            sums[stack] += value
    _check(selection, ranks, steps)
    by_weight = {name: dict(sorted(sums.items(), key=lambda item: (-item[1], item[0]))) for name, sums in found.items()}
    warnings += (finding.message for finding in word_all(unused_rules(add_rule_uses(uses))))
    rank_stacks = [RankStacks(name, sums) for name, sums in by_weight.items()]
    return Stacks(weight or "host", by or "operator", rank_stacks, warnings)


def _reports(path: Path, selection: Selection) -> list[RankReport]:
    """Return the steps of all ranks; each trace is analysed besides, unless that is cached.

    Raises:
        UsageError: traces of several jobs, which may differ only in the times of their steps: the ranks that have one
            number in them would be summed up.
    """
    return group_by_rank(load_run(path, selection.reading, True, None).summaries).reports


def _located(files: list[Path], reading: Options) -> Iterator[tuple[Path, int | None, TraceContext, tuple[str, ...]]]:
    """Yield the work of each trace with its rank, and what is lost of it, one trace in memory at a time."""
    for file in files:
        trace = read_trace(file, max_bytes=reading.max_bytes)
        (number,), _ = assign_ranks([(file.name, trace.header.rank)], None)
        yield file, number, reading.context(trace, str(file), MOST_STEPS), trace.damage


def _check(selection: Selection, ranks: set[int], steps: set[int]) -> None:
    if selection.ranks is not None:
        selection.ranks.check(ranks, "rank")
    if selection.steps is not None:
        selection.steps.check(steps, "step")


def _first_recorded(work: TraceContext) -> By:
    return next((by for by in BYS if work.located.has(by)), "operator")


def _check_recorded(weight: Weight, by: By, work: TraceContext, file: Path) -> None:
    """Raise UsageError if a trace has nothing for a weight or view."""
    if weight in ("device", "exposed") and not work.has_device:
        raise UsageError(f"--weight {weight}: {file} has no device activity; use --weight host")
    if weight == "host" and work.has_device:
        raise UsageError(f"--weight host: {file} has device activity, which is its work; use --weight device")
    if not work.located.has(by):
        what = "calls of modules" if by == "module" else "functions of the program"
        raise UsageError(f"--by {by}: {file} has no {what}; record with --with-stack (with_stack=True)")
