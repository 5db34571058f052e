"""The tables of a run's critical path."""

from collections.abc import Sequence
from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.kernel_names import LONGEST, shorten
from perfkit.report.content.work import INDENT
from perfkit.schema.per_rank.idle import CAUSE_WORDS
from perfkit.schema.per_run.critical_path import CommunicationSlack, CriticalPath, PathModuleTime
from perfkit.schema.rank import ONE_TO_N
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, escape_unprintable, format_percent, ranges

WORDS: Final[dict[str, str]] = {
    "compute": "compute",
    "communication": "communication",
    "memcpy": "memcpy",
    "data_loading": "data loading",
    "host": "operators and calls on the host",
    **{str(cause): words for cause, words in CAUSE_WORDS.items()},
}
_MOST_RANKS: Final = 4
_SMALLEST_SHARE: Final = 0.01
"""Share of the path from which a module is shown."""


def known_path(run: RunReport) -> CriticalPath | None:
    """Return the path if it tells more than the breakdown: a single rank without a device has one thread that works."""
    path = run.critical_path
    alone = len(run.ranks) == 1 and run.ranks[0].device == "cpu"
    return None if path is None or alone or not path.total_ns else path


def by_kind(run: RunReport) -> Table | None:
    """Return the path by kind, and the ranks that it runs through; None if unknown or trivial."""
    path = known_path(run)
    if path is None:
        return None
    return Table(
        f"Critical path of {_steps(path)}",
        (Column("category", "words"), Column("time"), Column("%")),
        [
            (
                Cell(WORDS[row.kind]),
                Cell(duration(row.total_ns / len(path.steps))),
                Cell(format_percent(row.total_ns / path.total_ns)),
            )
            for row in path.kinds
        ],
        _ranks(path),
    )


def _steps(path: CriticalPath) -> str:
    """Return which steps the path is of, in words."""
    known = [step for step in path.steps if step is not None]
    if not known:
        return "the whole trace"
    which = f"step {known[0]}" if len(known) == 1 else f"steps {ranges(known)} (mean per step)"
    return which if len(path.steps) == path.recorded_steps else f"{which}, of {path.recorded_steps} recorded"


def _ranks(path: CriticalPath) -> str:
    """Return the ranks that the path runs through, and what limits that."""
    remarks = []
    if path.linked and len(path.ranks) > 1:
        listed = [f"rank {row.rank} ({format_percent(row.total_ns / path.total_ns)})" for row in path.ranks]
        more = f" and {len(listed) - _MOST_RANKS} more" if len(listed) > _MOST_RANKS else ""
        remarks.append(f"the path runs through {', '.join(listed[:_MOST_RANKS])}{more}")
    elif path.linked is False and path.ranks:
        remarks.append(f"nothing in the traces links the ranks: this is rank {path.ranks[0].rank}, which ended last")
    if path.missing_ranks:
        missing = "1 rank has" if path.missing_ranks == 1 else f"{path.missing_ranks} ranks have"
        remarks.append(f"{missing} no trace: waiting for what is missing counts as communication")
    if path.unaligned_ranks:
        remarks.append(f"without ranks {ranges(path.unaligned_ranks)}, whose clocks nothing links to the others'")
    if path.violated:
        what = "1 dependency" if path.violated == 1 else f"{path.violated:,} dependencies"
        remarks.append(f"without {what} that the measured times contradict")
    return "; ".join(remarks)


def by_name(run: RunReport, top: int) -> Table | None:
    """Return the path by what ran on it; None if unknown or trivial."""
    path = known_path(run)
    if path is None:
        return None
    left = path.names[top:]
    left_ns = sum(row.total_ns for row in left) / len(path.steps)
    return Table(
        f"What is on the critical path of {_steps(path)}",
        (Column("what", "name"), Column("", "words"), Column("time"), Column("%")),
        [
            (
                Cell(escape_unprintable(row.name) or MISSING),
                Cell(WORDS[row.kind]),
                Cell(duration(row.total_ns / len(path.steps))),
                Cell(format_percent(row.total_ns / path.total_ns)),
            )
            for row in path.names[:top]
        ],
        f"{len(left)} more, {duration(left_ns)}" if left else "",
    )


def by_module(run: RunReport, top: int) -> Table | None:
    """Return the path by module; None if unknown or trivial, or if the traces contain no calls of modules."""
    path = known_path(run)
    if path is None or not path.modules:
        return None
    worth = [place for place, row in enumerate(path.modules) if row.total_ns >= _SMALLEST_SHARE * path.total_ns]
    ranked = sorted(worth, key=lambda place: (-path.modules[place].total_ns, place))[:top]
    left = len(path.modules) - len(ranked)
    return Table(
        f"Modules on the critical path of {_steps(path)}; each row includes those below it",
        (Column("module", "name"), Column("time"), Column("%"), Column("self")),
        [_module_row(path, path.modules[place]) for place in sorted(ranked)],
        f"{left} more {'row' if left == 1 else 'rows'}" if left else "",
    )


def _module_row(path: CriticalPath, row: PathModuleTime) -> tuple[Cell, ...]:
    return (
        Cell(INDENT * row.depth + shorten(escape_unprintable(row.name), LONGEST)),
        Cell(duration(row.total_ns / len(path.steps))),
        Cell(format_percent(row.total_ns / path.total_ns)),
        Cell(duration(row.self_ns / len(path.steps)) if row.self_ns else MISSING),
    )


def communication(run: RunReport, top: int) -> Table | None:
    """Return how much of the communication is on the path, and how much longer the rest could take; None if none is."""
    path = known_path(run)
    if path is None or not path.communication:
        return None
    left = len(path.communication) - top
    return Table(
        f"Communication on and off the critical path of {_steps(path)}",
        (
            Column("operator", "name"),
            Column("dimension", "name"),
            Column("count"),
            Column("transfer"),
            Column("on the path"),
            Column("median slack"),
        ),
        [_communication_row(row, len(path.steps)) for row in path.communication[:top]],
        "; ".join(filter(None, [f"{left} more" if left > 0 else "", _unsplit_remark(path.communication[:top])])),
    )


def _unsplit_remark(rows: Sequence[CommunicationSlack]) -> str:
    found = sorted({row.operator for row in rows if row.operator in ONE_TO_N})
    return f"the transfer of {' and '.join(found)} may include waiting for other ranks" if found else ""


def _communication_row(row: CommunicationSlack, steps: int) -> tuple[Cell, ...]:
    return (
        Cell(escape_unprintable(row.operator)),
        Cell(escape_unprintable(row.dimension or "unknown")),
        Cell(f"{row.count / steps:,.4g}"),
        Cell(duration(row.transfer_ns / steps)),
        Cell(duration(row.path_ns / steps)),
        Cell("any" if row.slack_ns is None else duration(row.slack_ns)),
    )
