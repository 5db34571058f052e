"""The tables of a run's critical path."""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.base.formatting import MISSING, duration, escape_unprintable, format_percent, ranges
from perfkit.base.step_numbers import numbered
from perfkit.records.aggregate import REPORTED_SHARE
from perfkit.records.per_rank.idle import CAUSE_WORDS
from perfkit.records.per_run.critical_path import CommunicationSlack, CriticalPath, PathNameTime
from perfkit.records.rank import ONE_TO_N
from perfkit.records.run import RunReport
from perfkit.tables.kernel_names import LONGEST, shorten
from perfkit.tables.labels import INDENT, UNKNOWN
from perfkit.tables.specification import (
    RUN,
    Field,
    Listing,
    Table,
    data_of,
    joined,
    make_table,
    name,
    number,
    of_runs,
    words,
)

WORDS: Final[dict[str, str]] = {
    "compute": "compute",
    "communication": "communication",
    "memcpy": "memcpy",
    "data_loading": "data loading",
    "host": "operators and calls on the host",
    **{str(cause): noun for cause, noun in CAUSE_WORDS.items()},
}
_MOST_RANKS: Final = 4
"""Share of the path from which a module is shown."""


def known_path(run: RunReport) -> CriticalPath | None:
    """Return the path if it tells more than the breakdown: a single rank without a device has one thread that works."""
    path = run.critical_path
    alone = len(run.ranks) == 1 and run.ranks[0].device == "cpu"
    return None if path is None or alone or not path.total_ns else path


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the path by kind, by what ran on it and by module, and the communication on and off it; none if trivial."""
    path = known_path(run)
    if path is not None:
        yield _by_kind(path)
        yield _by_name(path, top)
        yield _by_module(path, top)
        yield _communication(path, top)


def _by_kind(path: CriticalPath) -> Table | None:
    """Return the path by kind, and the ranks that it runs through."""
    columns = (words("category", lambda row: WORDS[row.kind]), *_times(path))
    return make_table(f"Critical path of {_steps(path)}", path.kinds, columns, _ranks(path))


def _by_name(path: CriticalPath, top: int) -> Table | None:
    columns = (
        name("what", lambda row: row.name or MISSING),
        words("", lambda row: WORDS[row.kind]),
        *_times(path),
    )
    left = path.names[top:]
    left_ns = sum(row.total_ns for row in left) / len(path.steps)
    remark = f"{len(left)} more, {duration(left_ns)}" if left else ""
    return make_table(f"What is on the critical path of {_steps(path)}", path.names, columns, remark, top=top)


def _by_module(path: CriticalPath, top: int) -> Table | None:
    """Return the largest modules, in the order of the program; None if the traces contain no calls of modules."""
    worth = [index for index, row in enumerate(path.modules) if row.total_ns >= REPORTED_SHARE * path.total_ns]
    ranked = sorted(worth, key=lambda index: (-path.modules[index].total_ns, index))[:top]
    left = len(path.modules) - len(ranked)
    columns = (
        Field("module", lambda row: INDENT * row.depth + shorten(escape_unprintable(row.name), LONGEST), "name"),
        *_times(path),
        number("self", lambda row: row.self_ns / len(path.steps) if row.self_ns else None, duration),
    )
    title = f"Modules on the critical path of {_steps(path)}; each row includes those below it"
    remark = f"{left} more {'row' if left == 1 else 'rows'}" if left else ""
    return make_table(title, [path.modules[index] for index in sorted(ranked)], columns, remark)


def _communication(path: CriticalPath, top: int) -> Table | None:
    """Return how much of the communication is on the path, and how much longer the rest could take; None if none is."""
    steps, left = len(path.steps), len(path.communication) - top
    columns = (
        name("operator", lambda row: row.operator),
        name("dimension", lambda row: row.dimension or UNKNOWN),
        number("count", lambda row: f"{row.count / steps:,.4g}"),
        number("transfer", lambda row: row.transfer_ns / steps, duration),
        number("on the path", lambda row: row.path_ns / steps, duration),
        number("median slack", lambda row: "any" if row.slack_ns is None else duration(row.slack_ns)),
    )
    title = f"Communication on and off the critical path of {_steps(path)}"
    remark = joined(f"{left} more" if left > 0 else "", _unsplit(path.communication[:top]))
    return make_table(title, path.communication, columns, remark, top=top)


def _times(path: CriticalPath) -> tuple[Field, Field]:
    return (
        number("time", lambda row: row.total_ns / len(path.steps), duration),
        number("%", lambda row: row.total_ns / path.total_ns, format_percent),
    )


def _steps(path: CriticalPath) -> str:
    """Return which steps the path is of, in words."""
    known = [step for step in path.steps if step is not None]
    if not known:
        return "the whole trace"
    which = f"step {numbered(known[0])}" if len(known) == 1 else f"steps {ranges(known)} (mean per step)"
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


def _unsplit(rows: Sequence[CommunicationSlack]) -> str:
    found = sorted({row.operator for row in rows if row.operator in ONE_TO_N})
    return f"the transfer of {' and '.join(found)} may include waiting for other ranks" if found else ""


LISTINGS: Final = {
    "critical_path": Listing(
        of_runs(lambda run: run.critical_path.names if run.critical_path else ()), (RUN, *data_of(PathNameTime))
    )
}
