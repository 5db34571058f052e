"""What agents may ask: eight questions about the runs below some folders, each answered with bounded text."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

from perfkit.base.formatting import duration, format_percent, in_ms, listed, plural, ranges, shell_word
from perfkit.base.parsing import parse_step
from perfkit.errors import StoreError, UsageError
from perfkit.pipeline.analyze import analyze
from perfkit.pipeline.compare import compare
from perfkit.pipeline.whatif import predict
from perfkit.records.aggregate import REPORTED_SHARE
from perfkit.records.per_run.ledger import LedgerRow
from perfkit.records.report import Insight, Report
from perfkit.records.run import RunReport
from perfkit.report import build_document, subject_tables
from perfkit.report.content.answer import RunAnswer, answer
from perfkit.report.content.document import Document
from perfkit.report.wording.ledger import takes
from perfkit.storage.discovery import RunLocation, choose_trace, find_runs
from perfkit.storage.run_folder import read_manifest
from perfkit.subjects.table import SUBJECTS, answer_subjects
from perfkit.tools.mcp.definitions import definition_lines
from perfkit.tools.mcp.text import bounded, table_lines
from perfkit.tools.mcp.time_window import window_lines
from perfkit.trace.nsys.paths import on_disk

Run = Annotated[str, "Path of a run, as list_runs gives it: a folder, a folder of several runs, or one trace."]

_ROWS: Final = 10
_SHOWN: Final = 200
"""Characters of a path that is refused."""


class Answers:
    """Answers about the runs below folders; nothing outside of them is opened.

    The docstring of each public method is what an agent reads of it.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._roots = [folder.resolve() for folder in folders]

    def list_runs(self, containing: Annotated[str, "Only runs whose path contains this text."] = "") -> str:
        """List the runs there are: path, state, what was trained, ranks. Begin here."""
        found = [one for one in find_runs(self._folders) if containing in str(one.path)]
        again = f"perfkit serve {' '.join(map(shell_word, self._folders))}"
        return bounded([plural(len(found), "run"), *map(_listed_run, found)], again)

    def answer(self, run: Run) -> str:
        """Where the time of a run's steps goes, what to do about it, and what makes that doubtful. Ask this first."""
        report = self._report(run)
        shown = answer(report)
        lines = [line.text for line in shown.first] + shown.headlines
        for one, of in zip(shown.runs, report.runs, strict=False):
            lines += _answer_lines(one, of)
        for number, advice in enumerate(shown.advice, 1):
            saving = f" ({advice.potential_saving})" if advice.potential_saving else ""
            lines.append(f"Do {number}: {advice.text}{saving}: {advice.recommendation}")
        lines += [f"{line.severity}: {line.text}" for line in shown.doubts]
        lines += [hint.command for hint in shown.more]
        lines += [line for table in shown.tables for line in table_lines(table)]
        return bounded(lines, f"perfkit analyze {shell_word(run)}")

    def ledger(self, run: Run) -> str:
        """All rows that a run's mean step is divided into, and each change that would help with what it rests on."""
        report = self._report(run)
        lines: list[str] = []
        for one in report.runs:
            lines += _ledger_lines(one)
            lines += [_change_line(insight) for insight in report.insights if insight.run == one.run]
        return bounded(lines, f"perfkit analyze {shell_word(run)} --json")

    def section(
        self,
        run: Run,
        name: Annotated[str, f"One of: {', '.join(SUBJECTS.names())}."],
        rows: Annotated[int, "Most rows of a table."] = _ROWS,
    ) -> str:
        """All tables about one subject: collectives, input, idle, ranks, memory, pipelines, roofline and others."""
        report = self._report(run, (name,))
        lines: list[str] = []
        for one in report.runs:
            tables = subject_tables(one, max(1, rows), (name,))
            lines.append(f"{one.run}, {_recorded(one)}:{'' if tables else ' nothing to show'}")
            lines += [line for table in tables for line in table_lines(table)]
        return bounded(lines, f"perfkit analyze {shell_word(run)} --section {name}")

    def compare(self, before: Run, after: Run) -> str:
        """What changed from one run (or folder of repeats) to another, and whether it is beyond noise."""
        paths = [self._inside(path) for path in (before, after)]
        lines = _document_lines(build_document(compare(*paths), _ROWS))
        return bounded(lines, f"perfkit compare {shell_word(before)} {shell_word(after)}")

    def whatif(
        self,
        run: Run,
        changes: Annotated[
            list[str] | None,
            "Such as rank1=healthy, input=0, collective[dp]=0, compute:aten::mm=0.5x, no_sync; all made together. "
            "Without any, single changes are ranked by what they save.",
        ] = None,
    ) -> str:
        """How long the step would take after changes, by replaying the recorded steps over all ranks."""
        lines = _document_lines(build_document(predict(self._inside(run), changes or []), _ROWS))
        return bounded(lines, f"perfkit whatif {' '.join(map(shell_word, [run, *(changes or [])]))}")

    def time_window(
        self,
        run: Run,
        rank: Annotated[int | None, "None for the lowest that has a trace."] = None,
        step: Annotated[str | None, "Its number, such as 12, or 2:3; None for the longest."] = None,
        start_ms: Annotated[float, "Since the start of the step."] = 0,
        end_ms: Annotated[float | None, "None for the end of the step."] = None,
    ) -> str:
        """What ran in a part of one rank's step, per thread and stream: categories, idle time, operators, kernels."""
        if not (math.isfinite(start_ms) and math.isfinite(end_ms or 0)):
            raise UsageError("start_ms and end_ms: must be finite")
        trace = choose_trace(self._inside(run), rank)
        number = None if step is None else parse_step(step, "step")
        end_ns = None if end_ms is None else round(end_ms * 1e6)
        lines = window_lines(trace, rank, number, round(start_ms * 1e6), end_ns)
        at = f" --step {step}" + (f" --at {start_ms:g}ms-{end_ms:g}ms" if end_ms is not None else "") if step else ""
        return bounded(lines, f"perfkit view {shell_word(trace)}{at}")

    def define(
        self, name: Annotated[str, "A number, field, cause or finding, such as 'slack' or 'launch-bound'."]
    ) -> str:
        """How perfkit defines a number or a word in its answers."""
        return bounded(definition_lines(name), "docs/metrics.md")

    def _report(self, run: str, subjects: Sequence[str] | None = None) -> Report:
        return analyze(self._inside(run), subjects=subjects or answer_subjects())

    def _inside(self, path: str) -> Path:
        """Return a path below the folders; traces in it are too, as no links in folders are followed.

        Raises:
            UsageError: It is not, or nothing is there.
        """
        candidates = [Path(path), *(folder / path for folder in self._folders)]
        found = next((one for one in candidates if self._contains(one)), None)
        if found is None:
            raise UsageError(f"{path[:_SHOWN]}: no such run below {listed(list(map(str, self._folders)), 5)}")
        return found

    def _contains(self, path: Path) -> bool:
        """Return whether a path exists, and is below the folders with all links followed."""
        try:
            real = on_disk(path).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):  # too long, with a zero character, or links in a circle
            return False
        return any(real.is_relative_to(root) for root in self._roots)


def _listed_run(location: RunLocation) -> str:
    traces = plural(len(location.traces), "trace")
    if not location.has_manifest:
        return f"{location.path}: recorded by another program; {traces}"
    try:
        manifest = read_manifest(location.path)
    except StoreError as error:
        return f"{location.path}: {error}"
    ranks = plural(manifest.world.world_size, "rank")
    failed = f"; rank {manifest.failure.rank} failed: {manifest.failure.message}" if manifest.failure else ""
    what = f"{manifest.workload}, {ranks}, {manifest.device}"
    return f"{location.path}: {manifest.state}, {manifest.started_at}, {what}; {traces}{failed}"


def _recorded(run: RunReport) -> str:
    """Return which ranks and steps the figures are of."""
    steps = sorted({step.step for rank in run.ranks for step in rank.steps if step.step is not None})
    ranks = sorted({rank.rank for rank in run.ranks if rank.rank is not None})
    of_ranks = f"ranks {ranges(ranks)}" if ranks else plural(len(run.ranks), "rank")
    return f"{of_ranks}, {f'recorded steps {ranges(steps)}' if steps else 'no numbered steps'}"


def _answer_lines(one: RunAnswer, run: RunReport) -> Iterator[str]:
    yield f"{one.title} ({_recorded(run)})"
    if one.trust and one.is_overruled:
        yield one.trust
    yield f"Headline: {one.headline}"
    if one.trust and not one.is_overruled:
        yield one.trust
    yield one.facts
    yield from (f"- {part.label}: {part.time}, {part.percent} {part.place}".rstrip() for part in one.parts)
    if one.whole_run:
        yield f"Whole run: {one.whole_run}"
    yield from (f"{line.severity}: {line.text}" for line in one.doubts)


def _ledger_lines(run: RunReport) -> Iterator[str]:
    if run.ledger is None:
        yield f"{run.run}, {_recorded(run)}: no ledger: {run.verdict.sentence}"
        return
    kind = "profiled step" if run.ledger.is_profiled else "step"
    along = "along the critical path" if run.ledger.from_path else "mean over ranks"
    yield f"{run.run}, {_recorded(run)}: the mean {kind} of {duration(run.ledger.step_ns)}, {along}, is"
    yield from map(_row_line, run.ledger.rows)


def _row_line(row: LedgerRow) -> str:
    ranks = f" of ranks {ranges(row.ranks)}" if row.ranks else ""
    steps = f" in steps {ranges(row.steps)}" if row.steps else ""
    what = f": {takes(row)}" if row.cause != "compute" and row.share >= REPORTED_SHARE else ""
    return f"- {row.cause}{ranks}{steps}: {in_ms(row.ns):.4g} ms, {format_percent(row.share)}{what}"


def _change_line(insight: Insight) -> str:
    saving = "" if insight.potential_saving_ns is None else f", {duration(insight.potential_saving_ns)} per step"
    by = f" (replay of {insight.predicted_for})" if insight.predicted_for else " at most" if saving else ""
    rests = ", ".join(f"{name}={value:.6g}" for name, value in insight.evidence.items())
    return f"Change: {insight.sentence}{saving}{by}: {insight.recommendation} [{rests}]"


def _document_lines(document: Document) -> list[str]:
    """Return a document as lines."""
    lines = [document.title, *(line.text for line in document.first), *document.headlines]
    lines += [line for table in document.opening for line in table_lines(table)]
    lines += [f"{line.severity}: {line.text}" for line in document.findings]
    lines += [line for table in document.comparison for line in table_lines(table)]
    for section in document.sections:
        lines.append(f"{section.title}: {section.headline}")
        lines += [f"{fact.label}: {fact.value}" for fact in section.key_values]
        lines += [line for table in (*section.summary, *section.tables) for line in table_lines(table)]
        lines += [f"{line.severity}: {line.text}" for line in section.findings]
    return [*lines, *document.footnotes]
