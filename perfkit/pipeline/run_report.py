"""Build the report of one run from the summaries of its traces; refuse a report that lacks something (`--strict`)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from perfkit.engine.ledger.verdict import judge
from perfkit.engine.run_context import RunContext
from perfkit.engine.runs.manifest_checks import manifest_metrics
from perfkit.engine.runs.pauses import costliest
from perfkit.engine.runs.trust import doubts
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.errors import TraceError
from perfkit.pipeline.subject_parts import compute_parts
from perfkit.pipeline.words import verdict as in_words
from perfkit.records.common import Finding, Observation, worst_first
from perfkit.records.report import Report
from perfkit.records.run import Doubt, RunReport, Verdict
from perfkit.report.wording import worded
from perfkit.report.wording.findings import word_all
from perfkit.subjects.table import Asked, is_advised

_FIELDS: Final = frozenset(RunReport.__struct_fields__)
_NOT_ASKED: Final = Verdict(bound="unknown", share=0.0, sentence="")


class BuiltRun(NamedTuple):
    """The report of a run, and the graphs of its steps."""

    report: RunReport
    graphs: Sequence[StepGraph]
    """Of all recordings; empty if there is none: `RunReport.findings` has the reason."""


def build_run(run: str, path: str, context: RunContext, lost: Sequence[Finding], subjects: Asked = None) -> BuiltRun:
    """Build the report of one run, and the graphs of its steps.

    Args:
        context: what its traces and its manifest tell.
        lost: findings about traces that could not be read.
        subjects: names of the subjects to report; None for all. Without those of the short answer there is no verdict.
    """
    manifest = context.manifest
    parts, added, failed = compute_parts(subjects, "run", context, _FIELDS)
    compared = subjects is None or "ranks" in subjects
    observed = [*context.findings(compared=compared), *failed]
    findings = worst_first([*lost, *word_all(observed)])
    report = RunReport(
        run=run,
        path=path,
        workload=manifest.workload if manifest else None,
        source=context.source,
        world_size=context.world_size,
        state=manifest.state if manifest else None,
        verdict=_verdict(context, findings) if is_advised(subjects) else _NOT_ASKED,
        step_time=context.step_time,
        ledger=context.ledger if is_advised(subjects) else None,
        ranks=context.ranks,
        profiler_cost=worded(context.profiler_cost),
        config=manifest.config if manifest else None,
        injections=manifest.injections if manifest else [],
        findings=findings,
        trust=worded(_doubts(context, [*lost, *observed])) if is_advised(subjects) else [],
        core_loads=context.core_loads,
        subjects=added,
        **({"data_loading": None, "efficiency": None, "cross_rank": None} | {n: worded(p) for n, p in parts.items()}),
        **(manifest_metrics(manifest) if manifest else {"throughput": None}),
    )
    return BuiltRun(report, context.graph.graphs)


def with_findings(run: RunReport, observed: Iterable[Observation]) -> RunReport:
    """Return the report with findings about what was observed after its own."""
    return replace(run, findings=[*run.findings, *word_all(observed)])


def with_folders(runs: list[RunReport], with_own: Callable[[RunReport], RunReport]) -> list[RunReport]:
    """Return the runs, each with what is in its folder; of a folder with several jobs, none has it."""
    folders = [run.path for run in runs]
    return [with_own(run) if folders.count(run.path) == 1 else run for run in runs]


def _doubts(context: RunContext, seen: Sequence[Observation | Finding]) -> list[Doubt]:
    config = context.manifest.config if context.manifest else None
    return doubts(
        seen, context.core_loads, context.ranks, context.profiler_cost, config, context.step_time, context.step_times
    )


def _verdict(context: RunContext, findings: Sequence[Finding]) -> Verdict:
    return in_words(judge(context.ledger, costliest(context.pauses, context.ranks), findings, len(context.traces)))


_LOSSES: Final = frozenset({"damaged_trace", "skipped_events", "repaired_events"})
"""Warnings about events that are missing, or of which a part is: what is repaired loses its duration, for example.

What is read without a loss, such as times in quotes, has no finding.
"""


def raise_if_lost(report: Report) -> None:
    """Raise a TraceError if a part of any trace is lost, or any finding is an error."""
    findings = [*report.findings, *(finding for run in report.runs for finding in run.findings)]
    # Several jobs in a folder share the findings about its files.
    lost = list(dict.fromkeys(_sentence(one) for one in findings if one.severity == "error" or one.code in _LOSSES))
    if lost:
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise TraceError(f"--strict: {lost[0]}{more}")


def _sentence(finding: Finding) -> str:
    """Return the message after the file's name, which a warning about a trace lacks."""
    return f"{finding.file}: {finding.message}" if finding.code in _LOSSES else finding.message
