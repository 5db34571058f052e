"""From a trace file to the summary of its rank: the one function that every executor runs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from perfkit.analysis.per_rank.summary import TraceSummary, summarize_trace
from perfkit.errors import NotATraceError, TraceError
from perfkit.schema.common import Finding
from perfkit.storage import cache
from perfkit.trace.reader import read_trace
from perfkit.util.formatting import escape_unprintable


class Options(Struct, frozen=True, kw_only=True):
    """What changes a summary, besides the trace."""

    step_marker: str | None = None
    max_bytes: int | None = None


class Task(Struct, frozen=True, kw_only=True):
    """A file to summarise."""

    path: str
    """As the user gave it: errors name it so."""
    folder: str
    """What `path` is relative to."""
    bytes: int
    """Size of the file."""
    options: Options
    cached: bool
    """Whether to look for an earlier result, and to keep this one."""

    @property
    def file(self) -> Path:
        """The file, wherever this runs."""
        return Path(self.folder, self.path)


class SummarizeResult(Struct, frozen=True, kw_only=True):
    """What came of a task."""

    summary: bytes | None = None
    """An encoded `TraceSummary`; None where the trace is lost."""
    lost: Finding | None = None
    """Why."""
    fresh: bool = False
    """Whether the summary was newly made."""


Progress = Callable[[int], None]


def load_cached(task: Task) -> TraceSummary | None:
    """Return the summary of an earlier analysis of a file that has not changed since; None if the work must be done."""
    known = cache.known_fingerprint(task.file) if task.cached else None
    summary = cache.load(known, _key(task.options)) if known else None
    return _checked(summary, task) if summary else None


def summarize_file(task: Task, progress: Progress | None = None) -> SummarizeResult:
    """Read and summarise one trace.

    Args:
        task: the file and the options.
        progress: called with the number of bytes of the file that were read since the last call.
    """
    known = cache.fingerprint(task.file) if task.cached else None
    summary = cache.load(known, _key(task.options)) if known else None
    if known and summary and _checked(summary, task):
        cache.store_stat(known)
        return SummarizeResult(summary=summary)
    outcome = _summarised(task, progress)
    if known and outcome.summary and cache.unchanged(known):
        cache.store(known, _key(task.options), outcome.summary)
        cache.store_stat(known)
    return outcome


def decoded(summary: bytes, file: str) -> TraceSummary:
    """Return a summary, with `file` as the name of its trace.

    Names that many ranks share become one string each.

    Raises:
        msgspec.DecodeError: it is none.
    """
    made = msgspec.msgpack.decode(summary, type=TraceSummary)
    for row in made.operators:
        force_setattr(row, "name", sys.intern(row.name))
    for finding in made.findings:
        force_setattr(finding, "file", file)
    return made


def _checked(summary: bytes, task: Task) -> TraceSummary | None:
    try:
        return decoded(summary, task.file.name)
    except msgspec.DecodeError:  # whole, and yet no summary: not written by perfkit
        return None


def _key(options: Options) -> bytes:
    return msgspec.msgpack.encode(options)


def _summarised(task: Task, progress: Progress | None) -> SummarizeResult:
    name = task.file.name
    try:
        # Nobody but `summarise` holds the trace: it goes as soon as it has served.
        summary = summarize_trace(
            read_trace(task.file, max_bytes=task.options.max_bytes, progress=progress), name, task.options.step_marker
        )
        return SummarizeResult(summary=_encoded(summary), fresh=True)
    except TraceError as error:
        # One damaged file of many costs its rank, not the analysis.
        foreign = isinstance(error, NotATraceError)
        message = str(error).replace(str(task.file), task.path)
        code, severity = ("not_a_trace", "info") if foreign else ("unreadable_trace", "error")
        return SummarizeResult(lost=Finding(code=code, severity=severity, message=message, file=name))  # type: ignore[arg-type]


def _encoded(summary: TraceSummary) -> bytes:
    try:
        return msgspec.msgpack.encode(summary)
    except (UnicodeEncodeError, OverflowError):
        # Names that were not UTF-8 (lone surrogates), sizes beyond 64 bits: damage that no encoding holds.
        encoded = msgspec.msgpack.encode(_encodable(msgspec.to_builtins(summary, builtin_types=(bytearray,))))
    try:
        decoded(encoded, "")
    except msgspec.DecodeError as error:
        raise TraceError(f"holds numbers that no trace holds ({error})") from error
    return encoded


def _encodable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_encodable(key): _encodable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(part) for part in value]
    if isinstance(value, str):
        return value if value.isprintable() else escape_unprintable(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return None
    return value


def task_for(path: Path, options: Options, cached: bool) -> Task:
    """Return the task of a file; what is no regular file (a pipe) can be read only once, and here."""
    regular = path.is_file()
    return Task(
        path=str(path),
        folder=os.getcwd(),
        bytes=path.stat().st_size if regular else 0,
        options=options,
        cached=cached and regular,
    )
