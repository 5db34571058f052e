"""The document of a diagnosis: who waits for whom, and where every rank was."""

from typing import Final

from perfkit.base.formatting import MISSING, escape_unprintable, ranges
from perfkit.records.hang import Diagnosis, RankPlace, Verdict
from perfkit.report.content.document import Document, FindingLine, KeyValue, Section
from perfkit.tables.specification import Table, Tone, make_table, name, number, words

_TONES: Final[dict[Verdict, Tone]] = {"agree": "good", "fault": "error", "unknown": "warning"}
_UNKNOWN: Final = "Too little was recorded to tell whether the ranks agree."


def document(report: Diagnosis, top: int) -> Document:
    """Return the content of `report`; of the ranks that were at the same place, at most `top` rows."""
    section = Section(
        title=escape_unprintable(report.path),
        headline=escape_unprintable(report.headline),
        tone=_TONES[report.verdict],
        key_values=_facts(report),
        tables=[table for table in [_places(report.ranks, top)] if table],
        findings=[FindingLine("warning", escape_unprintable(text)) for text in report.unread],
    )
    return Document("perfkit diagnose", [section])


def _facts(report: Diagnosis) -> list[KeyValue]:
    of = "" if report.world_size is None else f" of {report.world_size}"
    facts = [KeyValue("ranks", f"{len(report.ranks)}{of}")]
    facts += [KeyValue("also", escape_unprintable(fault.message)) for fault in report.faults[1:]]
    if report.verdict == "unknown":
        facts.append(KeyValue("not known", _UNKNOWN))
    return facts


def _places(places: list[RankPlace], top: int) -> Table | None:
    """Return where the ranks were, those at one place in one row; None without any."""
    rows: dict[tuple[str, str], list[RankPlace]] = {}
    for place in places:
        frame = place.frame
        where = MISSING if frame is None else f"{frame.file}:{frame.line}"
        rows.setdefault((place.state, where), []).append(place)
    left = len(rows) - top
    remark = f"{left} more: use --top N" if left > 0 else ""
    return make_table("Where each rank was", list(rows.items()), _PLACES, remark, top=top)


_PLACES: Final = (
    name("ranks", lambda row: ranges(place.rank for place in row[1])),
    number("steps", lambda row: ranges(place.steps for place in row[1] if place.steps is not None) or MISSING),
    words("state", lambda row: row[0][0]),
    name("source line", lambda row: row[0][1]),
)
