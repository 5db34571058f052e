"""The short answer of a report: what a reader wants to know first, for one screen of a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, rate, shell_word
from perfkit.base.step_numbers import numbered
from perfkit.options.identity import short_name
from perfkit.records.aggregate import step_time_ns, steps_ns
from perfkit.records.common import Finding, Severity
from perfkit.records.findings import MONITOR_CODES
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.report import Insight, Report
from perfkit.records.run import Bound, RunReport
from perfkit.records.scaling import MultiRunSummary
from perfkit.report.content.document import FindingLine, InsightItem
from perfkit.report.content.ledger import Part, parts
from perfkit.report.content.run_facts import described_ranks, described_workload, finding_lines, findings_beyond_verdict
from perfkit.report.wording.trust import trust_line
from perfkit.tables.specification import Table, Tone
from perfkit.trace.nsys.paths import trace_path

TONES: Final[dict[Bound, Tone]] = {"compute": "good", "none": "info", "unknown": "info"}
"""Of a verdict; the others are warnings."""


def advice(report: Report) -> list[InsightItem]:
    """Return the recommendations of a report; with several runs, each names its run."""
    alone = len(report.runs) == 1
    return [_item(insight, alone) for insight in report.insights]


def _item(insight: Insight, alone: bool) -> InsightItem:
    where = "" if alone else f"{escape_unprintable(insight.run)}: "
    # A plug-in, or a report that is read back, may have put anything into its sentences.
    sentence, recommendation = map(escape_unprintable, (insight.sentence, insight.recommendation))
    return InsightItem(f"{where}{sentence}", recommendation, _saving(insight))


def _saving(insight: Insight) -> str:
    """Return what the advice saves per step; empty where that is unknown, or it only leads to the reason."""
    if insight.potential_saving_ns is None or insight.only_finds_out:
        return ""
    most = "saves" if insight.predicted_for else "saves up to"
    return f"{most} {duration(insight.potential_saving_ns)}"


MOST_RUNS: Final = 5
"""With more runs than this there is a table of them instead of an answer for each."""
_MOST_ADVICE: Final = 3
_MOST_HEADLINES: Final = 4
_FIRST: Final = ("several_jobs", "no_scaling_series")
"""Codes of findings without which what follows is misread, or what was expected is missed."""
_SERIOUS: Final[tuple[Severity, ...]] = ("error", "warning")


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The summary of one run."""

    title: str
    trust: str
    """What makes the headline doubtful, and what would settle it; empty if nothing does."""
    is_overruled: bool
    """Whether a doubt weighs more than the headline, and stands before it."""
    facts: str
    """How long a step took, which a line that is too long keeps, and what ran."""
    headline: str
    tone: Tone
    parts: list[Part]
    """Rows of the ledger; empty without it."""
    whole_run: str
    """What the monitor saw over the whole run; empty without its logs."""
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
    headlines: list[str]
    """How each series scales."""
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
    first, others = first_and_other(report.findings)
    return Answer(
        runs=[] if several else [run_answer(run) for run in report.runs],
        headlines=headlines(report.multi_run)[:_MOST_HEADLINES],
        tables=[*(_overview(report.runs) if several else []), *_comparisons(report.multi_run)],
        advice=advice(report)[:_MOST_ADVICE],
        doubts=_serious(others) + (_doubts_by_run(report.runs) if several else []),
        first=first,
        more=_more(report.runs),
    )


def first_and_other(findings: Sequence[Finding]) -> tuple[list[FindingLine], list[FindingLine]]:
    """Return the findings about no single run: errors, and without which what follows is misread; and the others."""
    first = [one for one in findings if one.severity == "error" or one.code in _FIRST]
    return finding_lines(first), finding_lines([one for one in findings if one not in first])


def headlines(multi_run: MultiRunSummary | None) -> list[str]:
    """Return how well each series scales, after its name if there are several."""
    series = [one for one in multi_run.series if one.sentence] if multi_run else []
    alone = len({(one.workload, *one.varies.values()) for one in series}) == 1
    names = [", ".join([one.workload, *(short_name(*option) for option in one.varies.items())]) for one in series]
    heads = [one.sentence if alone else f"{name}: {one.sentence}" for name, one in zip(names, series, strict=True)]
    return [escape_unprintable(head) for head in heads]


# Tables are imported where they are needed: the answer about one run has none.
def _overview(runs: list[RunReport]) -> list[Table]:
    from perfkit.report.content.run_overview import steps_table

    table = steps_table(runs)
    return [table] if table else []


def _comparisons(multi_run: MultiRunSummary | None) -> list[Table]:
    if multi_run is None:
        return []
    from perfkit.report.content.options import strategies
    from perfkit.report.content.scaling import main_tables

    return [*strategies(multi_run.strategy_comparisons), *main_tables(multi_run)]


def _checked(run: RunReport) -> str:
    """Return how far another tool's figures are from perfkit's; empty without a cross-check."""
    if run.cross_check is None:
        return ""
    from perfkit.subjects.cross_check.tables import cross_check_sentence

    return cross_check_sentence(run.cross_check)


def _whole_run(run: RunReport) -> str:
    """Return what the monitor saw; empty without its logs."""
    if not run.monitor:
        return ""
    from perfkit.subjects.monitor.tables import whole_run

    return whole_run(run)


def run_answer(run: RunReport) -> RunAnswer:
    """Return the short answer of one run."""
    reported = {
        *("straggler", "early_ranks"),
        *(MONITOR_CODES if run.monitor else ()),
        *(code for doubt in run.trust for code in doubt.findings),
    }
    findings = [finding for finding in findings_beyond_verdict(run) if finding.code not in reported]
    return RunAnswer(
        title=escape_unprintable(run.run),
        trust=trust_line(run.trust),
        is_overruled=any(doubt.overrules for doubt in run.trust),
        facts="; ".join(part for part in (_step(run), described_workload(run), described_ranks(run)) if part),
        headline=escape_unprintable(run.verdict.sentence),
        tone=TONES.get(run.verdict.bound, "warning"),
        parts=parts(run.ledger) if run.ledger else [],
        whole_run=_whole_run(run),
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
    """Return the step time and the rate."""
    rates = [rate(run.throughput.samples_per_s, "samples")] if run.throughput else []
    if run.step_time is not None:
        kind = "profiled step" if run.step_time.is_profiled else "step"
        return ", ".join([f"{kind} {duration(run.step_time.mean_ns)}", *rates])
    # The headline has that of the monitor's logs: of all steps, where a script's manifest has the first ones.
    plain = (
        None if run.monitor is not None and run.monitor.step_ns is not None else step_time_ns(steps_ns(run, "plain"))
    )
    return ", ".join([*([] if plain is None else [f"step {duration(plain)}"]), *rates])


def _more(runs: Sequence[RunReport]) -> list[Hint]:
    """Return where to look next: options of the same command, and the timeline of a step."""
    path, marker = shell_word(runs[0].path), marker_option(runs[0]) + _data_marker_option(runs[0])
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
    """Return the rank of the straggler that takes longest; None without one, and on a busy machine."""
    rows = run.cross_rank.stragglers if run.cross_rank and not run.on_busy_machine else []
    return max(rows, key=lambda row: row.lag_ns).rank if rows else None


def _view(run: RunReport, step: StepBreakdown, rank: RankReport, remark: str) -> Hint:
    """Return the command for a step; of a rank with several traces, without the step: it may be in any of them."""
    at = "" if step.step is None or len(rank.traces) > 1 else f" --step {numbered(step.step)}{marker_option(run)}"
    return Hint(f"Timeline: perfkit view {shell_path(run, rank.traces[0])}{at}", remark)


def marker_option(run: RunReport) -> str:
    """Return the option that makes other commands find the same steps, after a space; empty if they do without."""
    return "" if run.step_marker is None else f" --step-marker {shell_word(run.step_marker)}"


def _data_marker_option(run: RunReport) -> str:
    """Return the option that makes another analysis find the same loading, after a space; empty without one."""
    return "" if run.data_marker is None else f" --data-marker {shell_word(run.data_marker)}"


def shell_path(run: RunReport, trace: str) -> str:
    """Return the path of a run's trace, quoted for a shell."""
    return shell_word(trace_path(Path(run.path), trace))
