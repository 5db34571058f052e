"""The ledger in words: what its rows are called, the headline, and how a recommendation begins."""

import re
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, rank_list, whole_percent
from perfkit.phases import PHASE_WORDS, PREFIX
from perfkit.records.facts import Words
from perfkit.records.per_run.ledger import LedgerCause, LedgerRow
from perfkit.tables.kernel_names import shorten

LABELS: Final[dict[LedgerCause, str]] = {
    "compute": "compute",
    "late_ranks": "late ranks",
    "bubble": "pipeline bubble",
    "communication": "communication",
    "memcpy": "copies",
    "data_loading": "data loading",
    "launch_bound": "launch-bound",
    "host_work": "host work",
    "synchronisation": "waiting for the device",
    "allocation": "allocating memory",
    "compilation": "compiling",
    "dependency": "device queue",
    "not_running": "host waiting",
    "profiler": "profiler",
    "other_device": "idle while others work",
    "unknown": "idle, cause unknown",
    "unrecorded": "not in recorded steps",
}
"""What the rows are called."""
_TAKES: Final[dict[LedgerCause, str]] = {
    "bubble": "The pipeline's bubble takes {share}",
    "memcpy": "Copies take {share}",
    "launch_bound": "Launch-bound: the device waits for launches for {share}",
    "host_work": "Host work takes {share} while nothing computes",
    "synchronisation": "The host waits for the device for {share}",
    "not_running": "The host waits for {share}",
    "dependency": "Work waits in the device's queue for {share}",
    "profiler": "The profiler takes {share}",
    "other_device": "Devices idle {share} of the time while others work",
    "unrecorded": "{share} is in steps that were not recorded",
    "unknown": "Idle takes {share}, cause unknown",
}
"""Begin of the headline on a row; others are 'Label takes'."""
_LATE_IN: Final[dict[LedgerCause, str]] = {"unknown": "idle", "launch_bound": "launching", "dependency": "queued work"}
"""What late ranks are late in, where that is not the label."""
_MOST_WORDS: Final = 15
"""Of a headline: without its place where that would be more."""
_NAMED: Final = 2
"""Most late ranks that a headline names."""
_DELAYS: Final = {
    "always": ("delays every step by", "delay every step by"),
    "at_times": ("delays the mean step by", "delay the mean step by"),
    "in_turns": ("delays steps in turns by", "delay steps in turns by"),
}
"""What one late rank does, and several, by when they are late."""
_FRAME: Final = re.compile(r"(?P<file>.*\.py)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
_TORCH_LOADER: Final = "enumerate(DataLoader)"
_NAME_WIDTH: Final = 48
"""Columns of a name in a sentence."""


def label(row: LedgerRow) -> str:
    """Return what a row is called."""
    if row.cause != "late_ranks":
        return LABELS[row.cause]
    return f"{rank_list(row.ranks)} late"


def place(row: LedgerRow) -> str:
    """Return what takes most of a row: a function with its line, an operator, a phase; empty if unknown."""
    name = _name(row)
    if row.late_in is None:
        return name
    late_in = _LATE_IN.get(row.late_in, LABELS[row.late_in])
    return f"{late_in} in {name}" if name and len(row.ranks) == 1 else late_in


def _name(row: LedgerRow) -> str:
    if row.code:
        return _line(row.code.function, row.code.file, row.code.line)
    name = row.name or ""
    if name.startswith(_TORCH_LOADER):
        return ""
    if row.cause in _UNNAMED:
        return ""
    phase = row.phase or name.removeprefix(PREFIX)
    if phase in PHASE_WORDS and not _FRAME.fullmatch(name):
        return PHASE_WORDS[phase]
    return _in_code(name)


def _in_code(name: str) -> str:
    """Return a name of the trace for a sentence: of a Python function, with its line."""
    if frame := _FRAME.fullmatch(name):
        return _line(frame["function"], frame["file"], int(frame["line"]))
    return shorten(escape_unprintable(name), _NAME_WIDTH)


def _line(function: str, file: str, line: int) -> str:
    where = escape_unprintable(f"{file.rpartition('/')[2]}:{line}")
    return where if function == "<module>" else f"`{escape_unprintable(function)}`, {where}"


_UNNAMED: Final = frozenset({"unknown", "launch_bound", "dependency", "profiler", "other_device", "bubble"})
"""Causes of which a name does not tell more."""


def takes(row: LedgerRow) -> str:
    """Return a headline on a row: what it takes of the step, and where."""
    begin, where = _begin(row), place(row)
    whole = f"{begin}: {where}."
    return whole if where and len(whole.split()) <= _MOST_WORDS else f"{begin}."


def _begin(row: LedgerRow) -> str:
    if row.cause == "late_ranks":
        delays = _DELAYS[row.late or "always"][len(row.ranks) > 1]
        who = _capital(rank_list(row.ranks)) if len(row.ranks) <= _NAMED else f"{len(row.ranks)} ranks"
        return f"{who} {delays} {_size(row)}"
    takes_share = _TAKES.get(row.cause, _capital(LABELS[row.cause]) + " takes {share}")
    return takes_share.format(share=whole_percent(row.share))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _size(row: LedgerRow) -> str:
    return f"{duration(row.ns)} ({whole_percent(row.share)})"


def headline(row: LedgerRow, bound: str) -> str:
    """Return the verdict on a run, in at most fifteen words and two numbers."""
    if bound == "compute":
        return f"Nothing large to fix: {whole_percent(row.share)} is compute."
    if bound == "none":
        return f"No single large loss: {whole_percent(row.share)} is {LABELS[row.cause]}."
    return takes(row)


def loses(row: LedgerRow, why: str) -> str:
    """Return what a row loses and how much: the begin of a recommendation."""
    where = place(row) if row.code or not why else why
    return f"{_capital(label(row))}, {_size(row)}{f': {where}' if where else ''}"


SENTENCES: Final[Words] = {
    "in_code": _in_code,
    "is_it_loading": lambda name: f"{_in_code(name)}: is that loading?",
    "no_verdict": "no verdict: {why}",
    "zero_duration": "all steps have zero duration",
    "nothing_read": lambda reason: reason or "nothing was read",
    "no_device_activity": "device activity was not recorded, and host operators alone do not show the bottleneck",
    "several_jobs": "several traces claim one rank at one time, so more than one job is in this folder",
}
