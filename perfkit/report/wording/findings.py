"""The message of each finding: a row per code, or per `code/case` where a code has several sentences."""

from collections.abc import Callable, Iterable, Mapping, Sized
from string import Formatter
from typing import Any, Final

from perfkit.base.formatting import duration, format_percent, percent_change, size, whole_percent
from perfkit.records.common import Finding, Observation
from perfkit.records.findings import severity_of
from perfkit.report.wording.findings_logs import LOGS
from perfkit.report.wording.findings_monitor import MONITOR
from perfkit.report.wording.findings_ranks import RANKS
from perfkit.report.wording.findings_runs import RUNS
from perfkit.report.wording.findings_several import SEVERAL
from perfkit.report.wording.findings_traces import TRACES

SENTENCES: Final[Mapping[str, str | Callable[..., str]]] = {**TRACES, **RANKS, **RUNS, **MONITOR, **LOGS, **SEVERAL}
"""A function of the values of the observation, or a template of `str.format`, also with the names in `_FORMATS` after
the colon. `{n:|one|several}` selects by whether a number, or the length of a list, is one."""
_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "duration": duration,
    "percent": whole_percent,
    "tenths": format_percent,
    "change": percent_change,
    "size": size,
    "list": ", ".join,
    "either": " or ".join,
}


class _Template(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("|"):
            one, several = format_spec[1:].split("|")
            return one if (len(value) if isinstance(value, Sized) else value) == 1 else several
        return _FORMATS[format_spec](value) if format_spec in _FORMATS else str(format(value, format_spec))


def word(seen: Observation) -> Finding:
    """Return an observation as a finding, with its message and severity."""
    words = SENTENCES[f"{seen.code}/{seen.case}" if seen.case else seen.code]
    message = words(**seen.values) if callable(words) else _Template().vformat(words, (), seen.values)
    return Finding(
        code=seen.code,
        severity=seen.severity or severity_of(seen.code),
        message=message,
        rank=seen.rank,
        file=seen.file,
    )


def word_all(observed: Iterable[Observation]) -> list[Finding]:
    """Return observations as findings, in the same order."""
    return list(map(word, observed))
