"""The document of a diagnosis: who waits for whom, and where every rank was."""

from typing import Final

from perfkit.report.content.document import Cell, Column, Document, FindingLine, KeyValue, Section, Table, Tone
from perfkit.schema.hang import Diagnosis, RankPlace, Verdict
from perfkit.util.formatting import MISSING, escape_unprintable, ranges

_TONES: Final[dict[Verdict, Tone]] = {"agree": "good", "fault": "error", "unknown": "warning"}
_UNKNOWN: Final = "Too little was recorded to tell whether the ranks agree."


def document(report: Diagnosis, top: int) -> Document:
    """Return the content of `report`; of the ranks that were at the same place, at most `top` rows."""
    section = Section(
        title=escape_unprintable(report.path),
        headline=escape_unprintable(report.headline),
        tone=_TONES[report.verdict],
        summary=[],
        key_values=_facts(report),
        tables=[_places(report.ranks, top)] if report.ranks else [],
        findings=[FindingLine("warning", escape_unprintable(text)) for text in report.unread],
    )
    return Document("perfkit diagnose", [], [section])


def _facts(report: Diagnosis) -> list[KeyValue]:
    of = "" if report.world_size is None else f" of {report.world_size}"
    facts = [KeyValue("ranks", f"{len(report.ranks)}{of}")]
    facts += [KeyValue("also", escape_unprintable(fault.message)) for fault in report.faults[1:]]
    if report.verdict == "unknown":
        facts.append(KeyValue("not known", _UNKNOWN))
    return facts


def _places(places: list[RankPlace], top: int) -> Table:
    """Return where the ranks were, those at one place in one row."""
    rows: dict[tuple[str, str], list[RankPlace]] = {}
    for place in places:
        frame = place.frame
        where = MISSING if frame is None else f"{frame.file}:{frame.line}"
        rows.setdefault((place.state, where), []).append(place)
    left = len(rows) - top
    return Table(
        "Where each rank was",
        (Column("ranks", "name"), Column("steps"), Column("state", "words"), Column("source line", "name")),
        [
            (
                Cell(ranges(place.rank for place in group)),
                Cell(_steps(group)),
                Cell(escape_unprintable(state)),
                Cell(escape_unprintable(where)),
            )
            for (state, where), group in list(rows.items())[:top]
        ],
        f"{left} more: use --top N" if left > 0 else "",
    )


def _steps(group: list[RankPlace]) -> str:
    return ranges(place.steps for place in group if place.steps is not None) or MISSING
