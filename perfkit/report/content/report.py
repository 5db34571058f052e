"""Turns a `Report` into the `Document` that the renderers draw."""

from collections.abc import Collection

from perfkit.base.formatting import escape_unprintable
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import subject_tables
from perfkit.report.content.answer import TONES, advice, first_and_other, headlines
from perfkit.report.content.breakdown import breakdown, efficiency
from perfkit.report.content.document import Document, Section
from perfkit.report.content.ledger import table as ledger_table
from perfkit.report.content.run_facts import findings, key_values, not_recorded
from perfkit.report.content.run_overview import comparison
from perfkit.report.content.scaling import opening
from perfkit.report.wording.trust import trust_line
from perfkit.subjects.table import SUBJECTS

FOOTNOTES = (
    "exposed: each instant of a step counts for one category, the first of compute, communication, memcpy and "
    "data loading that is active; the shares add up to the step.",
    "idle (overhead in files and --fail-on): none of them is active: launch gaps, Python, synchronisation, waiting.",
    "active: total time of a category; overlapped: the part of it during which an earlier category is active.",
)

MAX_WHOLE_RUNS = 8
"""With more runs than this, the tables of each run are left out."""


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
    first, findings = first_and_other(report.findings)
    return Document(
        "perfkit report",
        sections,
        notes,
        comparison(report),
        advice(report),
        findings,
        first,
        headlines(report.multi_run),
        opening(report.multi_run) if report.multi_run else [],
    )


def run_document(run: RunReport, top: int) -> Document:
    """Return everything that is shown of one run."""
    return document(Report(perfkit_version="", runs=[run]), top)


def _section(run: RunReport, top: int, whole: bool, alone: bool) -> Section:
    first = [ledger_table(run), breakdown(run) if whole else None, efficiency([run]) if whole and alone else None]
    return Section(
        title=escape_unprintable(run.run),
        headline=escape_unprintable(run.verdict.sentence),
        tone=TONES.get(run.verdict.bound, "warning"),
        trust=trust_line(run.trust),
        summary=[table for table in first if table is not None],
        key_values=key_values(run),
        tables=subject_tables(run, top) if whole else [],
        findings=findings(run),
    )


def subject_document(report: Report, top: int, subjects: Collection[str]) -> Document:
    """Return the tables of each run that are about some subjects, with a line where a run has none."""
    return Document("perfkit report", [_part(run, top, subjects) for run in report.runs])


def _part(run: RunReport, top: int, subjects: Collection[str]) -> Section:
    found = subject_tables(run, top, subjects)
    asked = " and ".join(name for name in SUBJECTS.names() if name in subjects)
    return Section(
        title=escape_unprintable(run.run),
        headline="" if found else f"nothing about {asked} in this run",
        tone="info",
        tables=found,
    )
