"""Summarise one trace: the function that every executor runs for each file."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from perfkit.base.formatting import escape_unprintable
from perfkit.engine.communication.collective_calls import collect_calls
from perfkit.engine.communication.collectives import tabulate_collectives
from perfkit.engine.steps.pauses import traced
from perfkit.engine.trace_context import TraceContext
from perfkit.engine.trace_summary import MOST_STEPS, NothingToAnalyseError, TraceSummary
from perfkit.errors import NotATraceError, TraceError
from perfkit.pipeline.subject_parts import compute_parts
from perfkit.records.common import Finding, Observation
from perfkit.records.kernel_rules import KernelRule
from perfkit.report.wording.findings import word, word_all
from perfkit.storage import cache
from perfkit.storage.cache import Fingerprint
from perfkit.trace.events import Header, RankTrace
from perfkit.trace.nsys.paths import on_disk
from perfkit.trace.reader import read_trace


class Options(Struct, frozen=True, kw_only=True):
    """Options that a summary depends on, besides the trace."""

    step_marker: str | None = None
    data_marker: str | None = None
    max_bytes: int | None = None
    kernel_rules: tuple[KernelRule, ...] = ()
    """Checked rules for kernel names, which come before perfkit's own."""
    subjects: tuple[str, ...] | None = None
    """Names of the subjects to compute; None for all."""

    def context(self, trace: RankTrace, file: str, most_steps: int | None = None) -> TraceContext:
        """Return the context of a trace; see `TraceContext` for what it raises."""
        return TraceContext(
            trace, file, self.step_marker, self.kernel_rules, most_steps=most_steps, data_marker=self.data_marker
        )


class Task(Struct, frozen=True, kw_only=True):
    """A file to summarise."""

    path: str
    """As the user gave it, for messages."""
    folder: str
    """The folder that `path` is relative to."""
    bytes: int
    """Size of the file."""
    options: Options
    cached: bool
    """Whether to use and to fill the cache."""

    @property
    def file(self) -> Path:
        """The file, independent of the working directory."""
        return Path(self.folder, self.path)


class SummarizeResult(Struct, frozen=True, kw_only=True):
    """Result of a task."""

    summary: bytes | None = None
    """An encoded `TraceSummary`; None if the trace is lost."""
    lost: Finding | None = None
    """The reason."""
    fresh: bool = False
    """Whether the summary was computed, not cached."""


Progress = Callable[[int], None]


def load_cached(task: Task) -> TraceSummary | None:
    """Return the cached summary of a file that has not changed since, without reading the file; else None."""
    fingerprint = cache.known_fingerprint(task.file) if task.cached else None
    summary = _cached(fingerprint, task.options) if fingerprint else None
    return _decoded_if_valid(summary, task) if summary else None


def summarize_file(task: Task, progress: Progress | None = None) -> SummarizeResult:
    """Read and summarise one trace.

    Args:
        progress: called with the number of bytes of the file read since the last call.
    """
    fingerprint = cache.fingerprint(task.file) if task.cached else None
    summary = _cached(fingerprint, task.options) if fingerprint else None
    if fingerprint and summary and _decoded_if_valid(summary, task):
        cache.store_stat(fingerprint)
        return SummarizeResult(summary=summary)
    outcome = _summarize(task, progress)
    if fingerprint and outcome.summary and cache.unchanged(fingerprint):
        cache.store(fingerprint, _key(task.options), outcome.summary)
        cache.store_stat(fingerprint)
    return outcome


def decoded(summary: bytes, file: str) -> TraceSummary:
    """Decode a summary, with `file` as the name of its trace.

    Names that many ranks share are interned.

    Raises:
        msgspec.DecodeError: it is not a summary.
    """
    decoded_summary = msgspec.msgpack.decode(summary, type=TraceSummary)
    for row in decoded_summary.operators:
        force_setattr(row, "name", sys.intern(row.name))
    for cause in decoded_summary.idle.causes:
        force_setattr(cause, "detail", sys.intern(cause.detail))
        force_setattr(cause, "context", cause.context and sys.intern(cause.context))
    work = decoded_summary.work
    for node in (node for tree in (work.trees if work else ()) for node in tree.nodes):
        force_setattr(node, "name", sys.intern(node.name))
    for kernel in work.kernels if work else ():
        for field in ("name", "operator", "inputs"):
            text = getattr(kernel, field)
            force_setattr(kernel, field, text and sys.intern(text))
    for finding in decoded_summary.findings:
        force_setattr(finding, "file", file)
    return decoded_summary


def _decoded_if_valid(summary: bytes, task: Task) -> TraceSummary | None:
    try:
        return decoded(summary, task.file.name)
    except msgspec.DecodeError:  # intact, but not a summary: not written by perfkit
        return None


def _cached(fingerprint: Fingerprint, options: Options) -> bytes | None:
    """Return the cached summary with the subjects that are asked for, or with all."""
    found = cache.load(fingerprint, _key(options))
    return found or (options.subjects and cache.load(fingerprint, _key(replace(options, subjects=None)))) or None


def _key(options: Options) -> bytes:
    return msgspec.msgpack.encode(options)


def _summarize(task: Task, progress: Progress | None) -> SummarizeResult:
    name = task.file.name
    try:
        # No other reference to the trace: `summarize_trace` releases it as soon as possible.
        summary = summarize_trace(
            read_trace(task.file, max_bytes=task.options.max_bytes, progress=progress), name, task.options
        )
        return SummarizeResult(summary=_encoded(summary), fresh=True)
    except TraceError as error:
        # A damaged file costs its rank, not the analysis.
        message = str(error).replace(str(task.file), task.path)
        if isinstance(error, NothingToAnalyseError) and error.damage:
            message += f" ({'; '.join(finding.message for finding in word_all(error.damage))})"
        code = "not_a_trace" if isinstance(error, NotATraceError) else "unreadable_trace"
        return SummarizeResult(lost=word(Observation(code, {"error": message}, file=name)))


def _encoded(summary: TraceSummary) -> bytes:
    try:
        return msgspec.msgpack.encode(summary)
    except (UnicodeEncodeError, OverflowError):
        # Damage that cannot be encoded: names that were not UTF-8 (lone surrogates), sizes beyond 64 bits.
        encoded = msgspec.msgpack.encode(_encodable(msgspec.to_builtins(summary, builtin_types=(bytearray,))))
    try:
        decoded(encoded, "")
    except msgspec.DecodeError as error:
        raise TraceError(f"contains impossible numbers ({error})") from error
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
    """Return the task of a file; one that is not a regular file (a pipe) is not cached."""
    file = on_disk(path)
    is_regular = file.is_file()
    return Task(
        path=str(path),
        folder=os.getcwd(),
        bytes=file.stat().st_size if is_regular else 0,
        options=options,
        cached=cached and is_regular,
    )


_ALL: Final = Options()
_FIELDS: Final = frozenset(TraceSummary.__struct_fields__)


def summarize_trace(
    trace: RankTrace, file: str, options: Options = _ALL, graph_events: int | None = None
) -> TraceSummary:
    """Analyse one trace.

    Args:
        trace: the trace.
        file: its name in findings.
        options: what of it is wanted, and how it is read.
        graph_events: of how many events the graph is at most; None for as many as suit the number of ranks.

    Raises:
        TraceError: the trace contains neither steps nor work.
    """
    context = TraceContext(
        trace, file, options.step_marker, options.kernel_rules, graph_events, MOST_STEPS, options.data_marker
    )
    del trace  # the context releases it as soon as possible
    parts, added, failed = compute_parts(options.subjects, "rank", context, _FIELDS)
    header = context.header
    parts |= {
        "has_device": context.has_device,
        "steps": context.break_down(with_causes="idle" in parts),
        "operators": context.operators,
        "rule_uses": context.names.rule_uses,
        "counts": {kind.name.lower(): count for kind, count in sorted(context.trace.counts.items())},
        "findings": [replace(finding, file=file) for finding in (*context.findings, *failed)],
    }
    collectives, activity, steps = context.collectives, context.activity, context.steps
    in_process = bool(activity.devices) and header.world_size is None
    del context  # the tables of collectives may have millions of rows, as the events have
    return TraceSummary(
        header=_without_lists(header),
        collectives=tabulate_collectives(collectives, steps),
        calls=collect_calls(collectives, activity, steps),
        pauses=traced(steps.pauses, steps.bounds),
        communicated=not in_process and bool(len(activity.communication.start) or len(collectives.start)),
        subjects=added,
        **parts,
    )


_LISTS: Final = ("collectives", "tensors", "pauses", "fetches", "without_batch", "samples", "worker_samples")


def _without_lists(header: Header) -> Header:
    """Drop the parts of the header that grow with the trace or the number of ranks."""
    own = header.perfkit
    pipeline = own.pipeline and replace(own.pipeline, messages=None) if own else None
    lists = dict.fromkeys(_LISTS)
    own = own and replace(own, pipeline=pipeline, **lists)
    return replace(header, groups=[], perfkit=own)
