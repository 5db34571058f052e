"""The message of each finding: a row per code, or per `code/case` where a code has several sentences."""

from collections.abc import Iterable
from typing import Final

from perfkit.records.common import Finding, Observation
from perfkit.records.facts import Fact, Words
from perfkit.records.findings import severity_of
from perfkit.report.wording import worded
from perfkit.report.wording.findings_logs import LOGS
from perfkit.report.wording.findings_monitor import MONITOR
from perfkit.report.wording.findings_ranks import RANKS
from perfkit.report.wording.findings_runs import RUNS
from perfkit.report.wording.findings_several import SEVERAL
from perfkit.report.wording.findings_traces import TRACES
from perfkit.tables.words import in_words

SENTENCES: Final[Words] = {**TRACES, **RANKS, **RUNS, **MONITOR, **LOGS, **SEVERAL}


def word(seen: Observation) -> Finding:
    """Return an observation as a finding, with its message and severity."""
    stated = Fact(f"{seen.code}/{seen.case}" if seen.case else seen.code, worded(seen.values))
    return Finding(
        code=seen.code,
        severity=seen.severity or severity_of(seen.code),
        message=in_words((stated,), SENTENCES),
        rank=seen.rank,
        file=seen.file,
    )


def word_all(observed: Iterable[Observation]) -> list[Finding]:
    """Return observations as findings, in the same order."""
    return list(map(word, observed))
