"""The short answer of a report: what a reader wants to know first, for one screen of a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import Final

from perfkit.report.content import aggregates as sums
from perfkit.report.content.document import FindingLine, InsightItem, Table, Tone
from perfkit.report.content.report import TONES, advice
from perfkit.report.content.run_facts import described_ranks, described_workload, finding_lines, findings_beyond_verdict
from perfkit.report.content.run_tables import SHORT, step_label
from perfkit.report.content.several_runs.run_overview import steps_table
from perfkit.report.content.several_runs.scaling import main_tables
from perfkit.report.content.several_runs.strategies import strategies
from perfkit.report.content.steps.monitor import MONITOR_CODES, whole_run
from perfkit.schema.aggregate import step_time_ns, steps_ns
from perfkit.schema.common import CATEGORIES, Category, Severity
from perfkit.schema.report import Report
from perfkit.schema.run import RunReport
from perfkit.schema.scaling import MultiRunSummary
from perfkit.util.formatting import duration, escape_unprintable, format_percents, rate

MOST_RUNS: Final = 5
"""With more runs than this there is a table of them instead of an answer for each."""
_MOST_ADVICE: Final = 3
_MUCH: Final = 0.05
"""By how much the mean step differs from the step time, as a share of that, if both are told."""
_LABELS: Final = SHORT | {"communication": "communication"}
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
    """What is said of one run."""

    title: str
    facts: str
    """What ran, and how long a step took."""
    headline: str
    tone: Tone
    parts: list[Part]
    """Categories of the mean step, without those that take nothing."""
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
    """What is said of a report."""

    runs: list[RunAnswer]
    """Empty if they are in the first of `tables`."""
    tables: list[Table]
    """What compares runs."""
    advice: list[InsightItem]
    doubts: list[FindingLine]
    """Errors and warnings about no single run."""
    more: list[Hint]
    """Where to look next."""


def answer(report: Report) -> Answer:
    """Return the short answer of a report."""
    several = len(report.runs) > MOST_RUNS
    return Answer(
        runs=[] if several else [run_answer(run) for run in report.runs],
        tables=[*([steps_table(report.runs)] if several else []), *_comparisons(report.multi_run)],
        advice=advice(report)[:_MOST_ADVICE],
        doubts=_serious(finding_lines(report.findings)) + (_doubts_by_run(report.runs) if several else []),
        more=_more(report.runs),
    )


def _comparisons(multi_run: MultiRunSummary | None) -> list[Table]:
    return [*strategies(multi_run.strategy_comparisons), *main_tables(multi_run)] if multi_run else []


def run_answer(run: RunReport) -> RunAnswer:
    """Return the short answer of one run."""
    told = {"straggler", *MONITOR_CODES}
    findings = [finding for finding in findings_beyond_verdict(run) if finding.code not in told]
    return RunAnswer(
        title=escape_unprintable(run.run),
        facts="; ".join(part for part in (described_workload(run), described_ranks(run), _step(run)) if part),
        headline=escape_unprintable(run.verdict.sentence),
        tone=TONES.get(run.verdict.bound, "warning"),
        parts=_parts(run),
        whole_run=whole_run(run),
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
        return ", ".join([f"step {duration(plain)}", *rates])
    if plain is not None:
        return ", ".join([f"step {duration(plain)} ({duration(profiled)} under the profiler)", *rates])
    if profiled is None:
        return ""
    remarks = [_mean(run, profiled), "the only one, which may not be typical" if _has_one_step(run) else ""]
    told = "; ".join(filter(None, remarks))
    return ", ".join([f"profiled step {duration(profiled)}{f' ({told})' if told else ''}", *rates])


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
    """Return whether one step was recorded; a trace without steps has a finding that says so."""
    numbers = {step.step for rank in run.ranks for step in rank.steps}
    return len(numbers) == 1 and None not in numbers


def _parts(run: RunReport) -> list[Part]:
    exposed = sums.exposed_sums(sums.steps_of(run))
    wall = sum(exposed)
    percents = format_percents(exposed)
    return [
        Part(category, _LABELS[category], ns / wall, percent)
        for category, ns, percent in zip(CATEGORIES, exposed, percents, strict=True)
        if ns
    ]


def _late(run: RunReport) -> str:
    compared = run.cross_rank
    if compared is None or run.verdict.bound == "imbalance":
        return ""
    if compared.stragglers:
        return next((escape_unprintable(one.message) for one in run.findings if one.code == "straggler"), "")
    whole = compared.lateness_known and compared.waits_known and len(run.ranks) == run.world_size > 1
    return "no rank is late beyond chance" if whole else ""


def _more(runs: Sequence[RunReport]) -> list[Hint]:
    """Return where to look next: options of the same command, and the trace of the slowest step."""
    path, marker = quote(escape_unprintable(runs[0].path)), marker_option(runs[0])
    command = f"perfkit analyze {path}{marker} --full" if len(runs) == 1 else "add --full"
    slowest = _slowest(runs)
    return [Hint(f"All tables: {command}", "(a page: -o report.html)"), *([slowest] if slowest else [])]


def _slowest(runs: Sequence[RunReport]) -> Hint | None:
    """Return the command that shows the slowest step of a run; None for several runs, or if it is unknown."""
    if len(runs) != 1:
        return None
    found = [(step.wall_ns, step.step, rank) for rank in runs[0].ranks for step in rank.steps if rank.traces]
    if not found:
        return None
    _, number, rank = max(found, key=lambda one: one[0])
    which = "" if len({step for _, step, _ in found}) == 1 else f"(step {step_label(number)} is the slowest)"
    return Hint(f"Timeline: perfkit view {shell_path(runs[0], rank.traces[0])}", which)


def marker_option(run: RunReport) -> str:
    """Return the option that makes other commands find the same steps, after a space; empty if they do without."""
    return "" if run.step_marker is None else f" --step-marker {quote(escape_unprintable(run.step_marker))}"


def shell_path(run: RunReport, trace: str) -> str:
    """Return the path of a run's trace, quoted for a shell."""
    path = Path(run.path)
    if path.name != trace:  # else the trace itself was given
        path /= trace
    return quote(escape_unprintable(str(path)))
