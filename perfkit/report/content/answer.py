"""The short answer of a report: what a reader wants to know first, for one screen of a terminal."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, format_percent, format_percents, rate, shell_word
from perfkit.records.aggregate import step_time_ns, steps_ns
from perfkit.records.common import CATEGORIES, Category, Severity
from perfkit.records.cross_rank import CrossRankSummary
from perfkit.records.findings import MONITOR_CODES
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.report import Report
from perfkit.records.run import ProfilerCost, RunReport
from perfkit.records.scaling import MultiRunSummary
from perfkit.report.content.advice import TONES, advice
from perfkit.report.content.document import FindingLine, InsightItem
from perfkit.report.content.options import strategies
from perfkit.report.content.run_facts import described_ranks, described_workload, finding_lines, findings_beyond_verdict
from perfkit.report.content.run_overview import steps_table
from perfkit.report.content.scaling import main_tables
from perfkit.report.wording.stragglers import one_off_place
from perfkit.subjects.cross_check.tables import cross_check_sentence
from perfkit.subjects.monitor.tables import whole_run
from perfkit.tables import aggregates as sums
from perfkit.tables.labels import SHORT
from perfkit.tables.specification import Table, Tone

MOST_RUNS: Final = 5
"""With more runs than this there is a table of them instead of an answer for each."""
_MOST_ADVICE: Final = 3
_MUCH: Final = 0.05
"""By how much the mean step differs from the step time, as a share of that, if both are told; share of the step that
each rank waits, if it is told."""
_NOTHING: Final = format_percent(0)
_LABELS: Final = SHORT | {"communication": "communication"}
_FIRST: Final = ("several_jobs",)
"""Codes of warnings without which what follows is misread."""
_SERIOUS: Final[tuple[Severity, ...]] = ("error", "warning")


@dataclass(frozen=True, slots=True)
class Part:
    """What a category takes of the step."""

    category: Category
    label: str
    share: float
    percent: str


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The summary of one run."""

    title: str
    facts: str
    """How long a step took, which a line that is too long keeps, and what ran."""
    headline: str
    tone: Tone
    parts: list[Part]
    """Categories of the mean step, without those that take nothing or would be shown as 0.0 %."""
    whole_run: str
    """What the monitor saw over the whole run; empty without its logs."""
    late: str
    """Which ranks are late; empty if that is the headline or unknown."""
    doubts: list[FindingLine]
    """Errors and warnings."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Where to look next: a command, and a remark if there is room for it."""

    command: str
    remark: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The summary of a report."""

    runs: list[RunAnswer]
    """Empty if they are in the first of `tables`."""
    tables: list[Table]
    """What compares runs."""
    advice: list[InsightItem]
    doubts: list[FindingLine]
    """Warnings about no single run."""
    first: list[FindingLine]
    """Errors about no single run, and what the runs are if that is in doubt."""
    more: list[Hint]
    """Where to look next."""


def answer(report: Report) -> Answer:
    """Return the short answer of a report."""
    several = len(report.runs) > MOST_RUNS
    first = [one for one in report.findings if one.severity == "error" or one.code in _FIRST]
    others = [one for one in report.findings if one not in first]
    return Answer(
        runs=[] if several else [run_answer(run) for run in report.runs],
        tables=[*(_overview(report.runs) if several else []), *_comparisons(report.multi_run)],
        advice=advice(report)[:_MOST_ADVICE],
        doubts=_serious(finding_lines(others)) + (_doubts_by_run(report.runs) if several else []),
        first=finding_lines(first),
        more=_more(report.runs),
    )


# Tables are imported where they are needed: the answer about one run has none.
def _overview(runs: list[RunReport]) -> list[Table]:

    table = steps_table(runs)
    return [table] if table else []


def _comparisons(multi_run: MultiRunSummary | None) -> list[Table]:
    if multi_run is None:
        return []

    return [*strategies(multi_run.strategy_comparisons), *main_tables(multi_run)]


def _checked(run: RunReport) -> str:
    """Return how far another tool's figures are from perfkit's; empty without a cross-check."""
    if run.cross_check is None:
        return ""

    return cross_check_sentence(run.cross_check)


def run_answer(run: RunReport) -> RunAnswer:
    """Return the short answer of one run."""
    reported = {"straggler", "early_ranks", *MONITOR_CODES}
    findings = [finding for finding in findings_beyond_verdict(run) if finding.code not in reported]
    return RunAnswer(
        title=escape_unprintable(run.run),
        facts="; ".join(part for part in (_step(run), described_workload(run), described_ranks(run)) if part),
        headline=escape_unprintable(run.verdict.sentence),
        tone=TONES.get(run.verdict.bound, "warning"),
        parts=_parts(run),
        whole_run=whole_run(run) if run.monitor else "",
        late=_late(run),
        doubts=_serious(finding_lines(findings)),
    )


def _doubts_by_run(runs: Sequence[RunReport]) -> list[FindingLine]:
    lines = [
        FindingLine(line.severity, f"{escape_unprintable(run.run)}: {line.text}")
        for run in runs
        for line in _serious(finding_lines(findings_beyond_verdict(run)))
    ]
    return sorted(lines, key=lambda line: _SERIOUS.index(line.severity))


def _serious(lines: Sequence[FindingLine]) -> list[FindingLine]:
    return [line for line in lines if line.severity in _SERIOUS]


def _step(run: RunReport) -> str:
    """Return the step time and the rate, of steps without the profiler where there are any."""
    plain, profiled = step_time_ns(steps_ns(run, "plain")), sums.step_time(run)
    rates = [rate(run.throughput.samples_per_s, "samples")] if run.throughput else []
    if plain is not None and profiled is None:
        # The headline has that of the monitor's logs: of all steps, where a script's manifest has the first ones.
        logged = run.monitor is not None and run.monitor.step_ns is not None
        return ", ".join([*([] if logged else [f"step {duration(plain)}"]), *rates])
    if plain is not None:
        less = _why_less(run.profiler_cost) if profiled is not None and profiled < plain else ""
        return ", ".join([f"step {duration(plain)} ({duration(profiled)} under the profiler{less})", *rates])
    if profiled is None:
        return ""
    remarks = [_mean(run, profiled), "a single step, which may not be typical" if _has_one_step(run) else ""]
    remark = "; ".join(filter(None, remarks))
    return ", ".join([f"profiled step {duration(profiled)}{f' ({remark})' if remark else ''}", *rates])


def _why_less(cost: ProfilerCost | None) -> str:
    """Return why recorded steps may be the shorter ones."""
    low, high = (cost.interval_ns if cost else None) or (1, 1)
    if high <= 0:
        return ": something else changed between these steps"
    return ": its cost is below the variation between steps" if low <= 0 else ""


def _mean(run: RunReport, step_ns: float) -> str:
    """Return what the step time is of, and the mean that shares and savings are of, if the two differ much."""
    steps = sums.steps_of(run)
    mean_ns = fmean(step.wall_ns for step in steps)
    if abs(mean_ns - step_ns) <= _MUCH * step_ns:
        return ""
    several_steps = len({step.step for step in steps}) > 1
    what = "median" if several_steps else "slowest rank"
    if several_steps and len(run.ranks) > 1:
        what += ", each step on its slowest rank"
    return f"{what}; mean {duration(mean_ns)}"


def _has_one_step(run: RunReport) -> bool:
    """Return whether one step was recorded; a trace without steps has a finding about that."""
    numbers = {step.step for rank in run.ranks for step in rank.steps}
    return len(numbers) == 1 and None not in numbers


def _parts(run: RunReport) -> list[Part]:
    exposed = sums.exposed_sums(sums.steps_of(run))
    wall = sum(exposed)
    percents = format_percents(exposed)
    return [
        Part(category, _LABELS[category], ns / wall, percent)
        for category, ns, percent in zip(CATEGORIES, exposed, percents, strict=True)
        if ns and percent != _NOTHING
    ]


def _late(run: RunReport) -> str:
    compared = run.cross_rank
    if compared is None:
        return ""
    late, early = _message(run, "straggler"), _message(run, "early_ranks")
    # What late ranks cost is told without such steps.
    single = _in_single_steps(compared)
    once = f"late in single steps besides: {single}" if single else ""
    if run.verdict.bound == "imbalance":
        return "; ".join(filter(None, [early, once]))
    if late:
        return "; ".join(filter(None, [late, early, once]))
    whole = compared.lateness_known and compared.waits_known and not run.is_partial and len(run.ranks) > 1
    if not whole:
        return ""
    if run.lacks_events:
        return "; ".join(filter(None, [_late_in_damaged_traces(compared), early]))
    but = _but_for(compared)
    # One that is always late is not told from a heavier stage.
    if _has_stage_of_one_rank(run):
        return f"no rank is late in single steps beyond chance{but}; one that always is may be a heavier stage"
    # The monitor's answer about the whole run stands above, and may name a rank.
    where = "in the recorded steps, " if run.monitor is not None and run.monitor.lateness_known else ""
    if early:
        return f"{where}no rank is late beyond chance{f'{but};' if but else ', but'} {early}"
    return f"{where}no rank is late beyond chance{but}{_although(run)}"


def _message(run: RunReport, code: str) -> str:
    return next((escape_unprintable(one.message) for one in run.findings if one.code == code), "")


def _although(run: RunReport) -> str:
    """Return a clause where each rank waits much: for one in some steps and another in others, or within each step."""
    steps = sums.steps_of(run)
    waits = run.cross_rank.rank_waits if run.cross_rank else []
    if not steps or len(waits) < len(run.ranks):
        return ""
    least_ns = min(row.exposed_wait_ns for row in waits) / len({step.step for step in steps})
    if least_ns < _MUCH * fmean(step.wall_ns for step in steps):
        return ""
    return f", although each waits at least {duration(least_ns)} per step for others"


def _late_in_damaged_traces(compared: CrossRankSummary) -> str:
    """Return what is known of late ranks where what would show another one may be missing."""
    late = _in_single_steps(compared)
    found = f"; late in single steps: {late}" if late else ""
    return f"whether a rank is late is not known, because traces are damaged{found}"


def _but_for(compared: CrossRankSummary) -> str:
    """Return a clause with the single steps in which a rank was late although it usually is not."""
    late = _in_single_steps(compared)
    return f", but for {late}" if late else ""


def _in_single_steps(compared: CrossRankSummary) -> str:
    named = [f"{one_off_place(one)} (by {duration(one.lag_ns)})" for one in compared.one_off_stragglers]
    if more := compared.one_off_steps - len(named):
        named.append(f"in {more} more {'step' if more == 1 else 'steps'}")
    return " and ".join(named)


def _has_stage_of_one_rank(run: RunReport) -> bool:
    """Return whether a rank of a pipeline has no other at its stage to be compared with."""
    ranks = Counter(tuple(rank.stages) for pipeline in run.pipelines for rank in pipeline.ranks)
    return 1 in ranks.values()


def _more(runs: Sequence[RunReport]) -> list[Hint]:
    """Return where to look next: options of the same command, and the timeline of a step."""
    path, marker = shell_word(runs[0].path), marker_option(runs[0])
    # The command as it is here would lose the files and tools that the tables compare with.
    is_repeatable = len(runs) == 1 and not _is_beside_others(runs[0])
    command = f"perfkit analyze {path}{marker} --full" if is_repeatable else "add --full"
    timeline = _timeline(runs)
    checks = [(run, sentence) for run in runs if (sentence := _checked(run))]
    return [
        *(Hint(f"{_which(run, runs)}{sentence}: add --section cross-check", "") for run, sentence in checks),
        Hint(f"All tables: {command}", "(a page: -o report.html)"),
        *([timeline] if timeline else []),
    ]


def _which(run: RunReport, runs: Sequence[RunReport]) -> str:
    return f"{escape_unprintable(run.run)}: " if len(runs) > 1 else ""


def _is_beside_others(run: RunReport) -> bool:
    """Return whether the report also has what was read from other files, or by another tool."""
    others = (run.cross_check, run.bandwidth_shares, run.memory_snapshot, run.nccl_logs, run.one_ccl_logs)
    return any(other is not None for other in others)


def _timeline(runs: Sequence[RunReport]) -> Hint | None:
    """Return the command that shows a step of the worst straggler, or without stragglers the slowest step.

    None for several runs, or if there is no such trace.
    """
    if len(runs) != 1:
        return None
    (run,) = runs
    late = _worst_straggler(run)
    found = [(step, rank) for rank in run.ranks if rank.traces for step in rank.steps]
    of_late = [(step, rank) for step, rank in found if late is not None and rank.rank == late]
    if of_late:  # the step in which it did most itself: in the others' longest it may have waited
        step, rank = max(of_late, key=lambda one: one[0].wall_ns - one[0].exposed_ns.communication)
        return _view(run, step, rank, "(a straggler)")
    if not found:
        return None
    step, rank = max(found, key=lambda one: one[0].wall_ns)
    is_only = len({one.step for one, _ in found}) == 1
    return _view(run, step, rank, "" if is_only or len(rank.traces) > 1 else "(the slowest step)")


def _worst_straggler(run: RunReport) -> int | None:
    """Return the rank of the straggler that takes longest; None without one."""
    rows = run.cross_rank.stragglers if run.cross_rank else []
    return max(rows, key=lambda row: row.lag_ns).rank if rows else None


def _view(run: RunReport, step: StepBreakdown, rank: RankReport, remark: str) -> Hint:
    """Return the command for a step; of a rank with several traces, without the step: it may be in any of them."""
    at = "" if step.step is None or len(rank.traces) > 1 else f" --step {step.step}{marker_option(run)}"
    return Hint(f"Timeline: perfkit view {shell_path(run, rank.traces[0])}{at}", remark)


def marker_option(run: RunReport) -> str:
    """Return the option that makes other commands find the same steps, after a space; empty if they do without."""
    return "" if run.step_marker is None else f" --step-marker {shell_word(run.step_marker)}"


def shell_path(run: RunReport, trace: str) -> str:
    """Return the path of a run's trace, quoted for a shell."""
    path = Path(run.path)
    if path.name != trace:  # else the trace itself was given
        path /= trace
    return shell_word(path)
