"""Turns a `Report` into the `Document` that the renderers draw."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from perfkit.report.content import critical_path, idle, memory_use
from perfkit.report.content import run_tables as tables
from perfkit.report.content.aggregates import headline_step_ns
from perfkit.report.content.comm_logs.nccl import nccl_tables
from perfkit.report.content.comm_logs.one_ccl import one_ccl_tables
from perfkit.report.content.cross_check import cross_check
from perfkit.report.content.cross_rank import bandwidth_shares, efficiency, fits, shared_collectives
from perfkit.report.content.device_use import roofline
from perfkit.report.content.device_use.launches import launches
from perfkit.report.content.document import Document, InsightItem, Section, Table, Tone
from perfkit.report.content.memory_snapshot import snapshot_tables
from perfkit.report.content.not_recorded import not_recorded
from perfkit.report.content.parallelism import sharding
from perfkit.report.content.parallelism.dimensions import by_dimension
from perfkit.report.content.parallelism.divided_work import divided_work
from perfkit.report.content.parallelism.pipelines import pipelines
from perfkit.report.content.run_facts import finding_lines, findings, key_values
from perfkit.report.content.several_runs.run_overview import comparison
from perfkit.report.content.steps import monitor
from perfkit.report.content.steps.pauses import pauses
from perfkit.report.content.steps.phases import phases
from perfkit.report.content.work import work_tables
from perfkit.schema.aggregate import longest_mean_step_ns
from perfkit.schema.report import BESIDES_STEPS, Insight, Report
from perfkit.schema.run import Bound, RunReport
from perfkit.util.formatting import duration, escape_unprintable

FOOTNOTES = (
    "exposed: each instant of a step counts for one category, the first of compute, communication, memcpy and "
    "data loading that is active; the shares add up to the step.",
    "idle (overhead in files and --fail-on): none of them is active: launch gaps, Python, synchronisation, waiting.",
    "active: total time of a category; overlapped: the part of it during which an earlier category is active.",
)

MAX_WHOLE_RUNS = 8
"""With more runs than this, the tables of each run are left out."""

TONES: dict[Bound, Tone] = {"compute": "good", "none": "info", "unknown": "info"}


def document(report: Report, top: int) -> Document:
    """Return everything that is shown of `report`, with at most `top` rows in its ranked tables."""
    whole = len(report.runs) <= MAX_WHOLE_RUNS
    alone = len(report.runs) == 1
    sections = [_section(run, top, whole, alone) for run in report.runs]
    notes = list(FOOTNOTES) if any(run.ranks for run in report.runs) else []
    notes += not_recorded(report.runs)
    if not whole:
        notes.append(
            f"With more than {MAX_WHOLE_RUNS} runs the tables of each run are left out: analyze fewer runs to see them."
        )
    findings = finding_lines(report.findings)
    return Document("perfkit report", comparison(report), sections, notes, advice(report), findings)


def run_document(run: RunReport, top: int) -> Document:
    """Return everything that is shown of one run."""
    return document(Report(perfkit_version="", runs=[run]), top)


def advice(report: Report) -> list[InsightItem]:
    """Return the recommendations of a report; with several runs, each names its run."""
    alone = len(report.runs) == 1
    runs = {run.run: run for run in report.runs}
    promised: dict[str, float] = {}
    items = []
    for insight in report.insights:
        # Comparisons of several runs, and what is besides the steps, are no parts of one step.
        run = None if insight.rule == BESIDES_STEPS else runs.get(insight.run)
        before_ns, saving_ns = promised.get(insight.run, 0.0), insight.potential_saving_ns or 0.0
        if insight.rule == BESIDES_STEPS:
            before_ns, saving_ns = 0.0, 0.0
        overlaps = (
            run is not None and before_ns > 0 and before_ns + saving_ns > (longest_mean_step_ns(run) or float("inf"))
        )
        items.append(_item(insight, alone, run, overlaps=overlaps and saving_ns > 0))
        promised[insight.run] = promised.get(insight.run, 0.0) + saving_ns
    return items


def _item(insight: Insight, alone: bool, run: RunReport | None, *, overlaps: bool) -> InsightItem:
    # What one rank is idle for, another waits for: together, savings cannot be more than the step.
    besides = ", in part the same as above" if overlaps else ""
    where = "" if alone else f"{escape_unprintable(insight.run)}: "
    # A plug-in, or a report that is read back, may have put anything into its sentences.
    sentence, recommendation = map(escape_unprintable, (insight.sentence, insight.recommendation))
    return InsightItem(f"{where}{sentence}", recommendation, _saving(insight, run) + besides)


def _saving(insight: Insight, run: RunReport | None) -> str:
    """Return what the advice may save; `run` is the one of whose step that is a part."""
    if insight.potential_saving_ns is None:
        return ""
    saved = f"{duration(insight.potential_saving_ns)} {_of_step(insight.potential_saving_ns, run)}"
    if insight.only_finds_out:
        return f"concerns {saved}"
    if insight.predicted_for is None:
        return f"up to {saved}"
    by_replay = f"predicted by replaying the steps with {escape_unprintable(insight.predicted_for)}"
    if not insight.potential_saving_ns:
        return f"would save nothing, {by_replay}"
    # What is recommended makes it less, but seldom nothing.
    most = "up to" if insight.predicted_for.endswith("=0") else "would save"
    return f"{most} {saved}, {by_replay}"


def _of_step(saving_ns: float, run: RunReport | None) -> str:
    """Return what a saving is a part of: the mean of profiled steps, which the profiler or a slow step may lengthen.

    It is named where the saving is more than the step time that the report begins with.
    """
    headline_ns = None if run is None or not any(rank.steps for rank in run.ranks) else headline_step_ns(run)
    if run is None or headline_ns is None or saving_ns <= headline_ns:
        return "per step"
    return f"of the mean profiled step of {duration(longest_mean_step_ns(run))}"


def _section(run: RunReport, top: int, whole: bool, alone: bool) -> Section:
    first = [tables.breakdown(run) if whole else None, efficiency([run]) if whole and alone else None]
    return Section(
        title=escape_unprintable(run.run),
        headline=escape_unprintable(run.verdict.sentence),
        tone=TONES.get(run.verdict.bound, "warning"),
        summary=[table for table in first if table is not None],
        key_values=key_values(run),
        tables=[table for subject in SUBJECTS.values() for table in subject(run, top) if table] if whole else [],
        findings=findings(run),
    )


SUBJECTS: Final[Mapping[str, Callable[[RunReport, int], Sequence[Table | None]]]] = {
    "ranks": lambda run, _: [tables.ranks(run)],
    "monitor": lambda run, top: [monitor.overview(run), monitor.events(run, top)],
    "critical-path": lambda run, top: [
        critical_path.by_kind(run),
        critical_path.by_name(run, top),
        critical_path.by_module(run, top),
        critical_path.communication(run, top),
    ],
    "pipelines": lambda run, _: list(pipelines(run)),
    "steps": lambda run, top: [tables.slowest_steps(run, top)],
    "pauses": lambda run, _: [pauses(run)],
    "idle": lambda run, top: [idle.causes(run), idle.details(run, top), launches(run)],
    "input": lambda run, _: [tables.data_loading(run)],
    "memory": lambda run, top: [
        tables.memory(run),
        memory_use.by_category(run),
        memory_use.largest(run, top),
        memory_use.largest_blocks(run, top),
        *snapshot_tables(run, top),
    ],
    "phases": lambda run, top: [phases(run, top)],
    "work": lambda run, top: [*work_tables(run, top), tables.operators(run, top)],
    "roofline": lambda run, top: [roofline.by_kind(run), roofline.by_shapes(run, top), roofline.by_module(run, top)],
    "collectives": lambda run, top: [
        *by_dimension(run),
        tables.collectives(run, top),
        shared_collectives(run, top),
        fits(run),
        bandwidth_shares(run, top),
    ],
    "sharding": lambda run, top: [
        sharding.by_phase(run),
        sharding.by_layer(run, top),
        sharding.gathers(run),
        divided_work(run),
    ],
    "comm-logs": lambda run, top: [*nccl_tables(run, top), *one_ccl_tables(run, top)],
    "cross-check": lambda run, top: [cross_check(run.cross_check, top)],
}
"""The tables of a run, by what they are about; in the order in which they are shown."""


def subject_document(report: Report, top: int, subjects: Collection[str]) -> Document:
    """Return the tables of each run that are about some of `SUBJECTS`, with a line where a run has none."""
    return Document("perfkit report", [], [_part(run, top, subjects) for run in report.runs])


def _part(run: RunReport, top: int, subjects: Collection[str]) -> Section:
    found = [table for name, subject in SUBJECTS.items() if name in subjects for table in subject(run, top) if table]
    asked = " and ".join(name for name in SUBJECTS if name in subjects)
    return Section(
        title=escape_unprintable(run.run),
        headline="" if found else f"nothing about {asked} in this run",
        tone="info",
        summary=[],
        key_values=[],
        tables=found,
        findings=[],
    )
