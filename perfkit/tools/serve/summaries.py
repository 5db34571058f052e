"""The answer about one run, for its row in the list."""

from msgspec import Struct

from perfkit.records.report import Report
from perfkit.report.content.answer import run_answer
from perfkit.report.content.first_screen import LedgerRow, ledger


class RunSummary(Struct, frozen=True, kw_only=True):
    """What a row shows of a run's analysis."""

    verdict: str
    tone: str
    """As in `perfkit.tables.specification.Tone`; `error` if the run cannot be analysed."""
    rows: list[LedgerRow] = []
    """What takes the step; empty without steps."""


def summary_of(report: Report) -> RunSummary:
    """Return the answer of the only run of a report."""
    (run,) = report.runs
    answer = run_answer(run)
    found = ledger(run, answer.parts)
    return RunSummary(verdict=answer.headline, tone=answer.tone, rows=found.rows if found else [])
