"""The ledger in words: what its rows are called, the headline, and how a recommendation begins."""

import re
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, ranges, rank_list, whole_percent
from perfkit.base.step_numbers import numbered
from perfkit.phases import PHASE_WORDS, PREFIX
from perfkit.records.cross_rank import LateWork, SlowTransfers
from perfkit.records.facts import Words
from perfkit.records.per_rank.idle import CAUSE_WORDS, CAUSES
from perfkit.records.per_run.ledger import LedgerCause, LedgerRow
from perfkit.records.per_run.pauses import PausePhase
from perfkit.records.samples import CodeLocation
from perfkit.tables.kernel_names import shorten

_IDLE: Final[dict[LedgerCause, str]] = {cause: CAUSE_WORDS[cause] for cause in CAUSES}
LABELS: Final[dict[LedgerCause, str]] = {
    **_IDLE,
    "compute": "compute",
    "late_ranks": "late ranks",
    "slow_network": "slow network",
    "bubble": "pipeline bubble",
    "communication": "communication",
    "memcpy": "copies",
    "data_loading": "data loading",
    "unknown": "idle, cause unknown",
    "unrecorded": "not in recorded steps",
}
"""What the rows are called."""
_TAKES: Final[dict[LedgerCause, str]] = {
    "memcpy": "Copies take {share}",
    "launch_bound": "Launch-bound: waiting for launches takes {share}",
    "host_work": "Host work takes {share} while nothing computes",
    "dependency": "Queueing on the device takes {share}",
    "profiler": "The profiler takes {share}",
    "other_device": "Devices idle {share} of the time while others work",
    "unrecorded": "Steps that were not recorded add {share}",
    "unknown": "Idle takes {share}, cause unknown",
}
"""Begin of the headline on a row; others are 'Label takes'."""
_PAUSES: Final[dict[PausePhase, str]] = {
    "checkpoint": "Checkpoints take",
    "evaluation": "Evaluation takes",
    "logging": "Logging takes",
}
_LATE_IN: Final[dict[LedgerCause, str]] = {"unknown": "idle", "launch_bound": "launching", "dependency": "queued work"}
"""What late ranks are late in, where that is not the label."""
_UNNAMED: Final = frozenset({"unknown", "launch_bound", "dependency", "profiler", "other_device", "bubble"})
"""Causes of which a name does not tell more."""
_UNNAMED_LATE: Final = _UNNAMED | {"compute", "memcpy"}
"""The same of late ranks: what takes most of their compute need not be what they have more of."""
_MOST_WORDS: Final = 15
"""Of a headline: with less of its place, or without it, where that would be more. A figure and its unit are one."""
_UNIT: Final = re.compile(r"(?<=\d) (?=\w?s\b|%)")
_NAMED_STEPS: Final = 3
"""Most congested steps that a sentence names one by one."""
_NAMED: Final = 2
"""Most late ranks that a headline names."""
_DELAYS: Final = {
    "always": ("delays every step by", "delay every step by"),
    "at_times": ("delays the mean step by", "delay the mean step by"),
    "in_turns": ("delays steps in turns by", "delay steps in turns by"),
    "once": ("delays the mean step by", "delay the mean step by"),
}
"""What one late rank does, and several, by when they are late."""
_FRAME: Final = re.compile(r"(?P<file>.*\.py)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
_COLLECTION: Final = ("<built-in function collect>", "<built-in method collect>")
_TORCH_LOADER: Final = "enumerate(DataLoader)"
_NAME_WIDTH: Final = 48
"""Columns of a name in a sentence."""


def label(row: LedgerRow) -> str:
    """Return what a row is called."""
    if row.cause != "late_ranks":
        return LABELS[row.cause]
    steps = f" in step{'s' * (len(row.steps) > 1)} {ranges(row.steps)}" if row.steps else ""
    return f"{f'host {escape_unprintable(row.host)}' if row.host else rank_list(row.ranks)} late{steps}"


def places(row: LedgerRow) -> tuple[str, str]:
    """Return what takes most of a row, and the same in fewer words; empty if unknown.

    It is a function with its line, an operator, or a phase; of late ranks also what they take longer in.
    """
    name = _where_slow(row.slow) if row.slow else _name(row)
    if row.late_in is None:
        return name, name
    late_in = _LATE_IN.get(row.late_in, LABELS[row.late_in])
    if row.work and (how := _worked(row.work)):
        return how, late_in
    return (f"{late_in} in {name}", name) if name and len(row.ranks) == 1 else (late_in, late_in)


def _worked(work: LateWork) -> str:
    """Return what late ranks do more of, or more slowly; empty if it is not known which."""
    kind, times = "kernel" if work.on_device else "operator", f"{work.times:.3g} times"
    name = _in_code(work.name) if work.name else ""
    if work.factor == "runs":
        what = "launches" if work.of == "launches" else f"{kind}s"
        told = f"{name} runs {times} as often" if name else f"{times} as many {what}"
        return told if work.usual else ""
    if work.factor == "size":
        what = "blocks" if work.on_device else "input"
        return f"{name} has {times} the {what}" if name else f"{kind}s have {times} the {what}"
    if work.factor == "time":
        return ""
    if work.of in ("compute_bound", "memory_bound"):
        return f"{work.of.replace('_', '-')} {kind}s take {times} as long"
    whole = "each launch" if work.of == "launches" else f"every {kind}"
    return f"{name or whole} takes {times} as long"


def _name(row: LedgerRow) -> str:
    if row.code:
        return _line(row.code.function, row.code.file, row.code.line)
    name = row.name or ""
    if name.startswith(_TORCH_LOADER) or row.cause in _UNNAMED or row.late_in in _UNNAMED_LATE:
        name = ""
    if row.phase in PHASE_WORDS and not _FRAME.fullmatch(name):
        return PHASE_WORDS[row.phase]
    return _in_code(name)


def call(what: CodeLocation | str) -> str:
    """Return a function as its remedy names it, whose row has the line."""
    function = what.function if isinstance(what, CodeLocation) else _FRAME.sub(r"\g<function>", what)
    if function == "<module>" or function == what:
        return _line(what.function, what.file, what.line) if isinstance(what, CodeLocation) else _in_code(what)
    return f"`{escape_unprintable(function)}`"


def _in_code(name: str) -> str:
    """Return a name of the trace for a sentence: of a Python function with its line, of a phase its words."""
    if frame := _FRAME.fullmatch(name):
        return _line(frame["function"], frame["file"], int(frame["line"]))
    if (phase := name.removeprefix(PREFIX)) in PHASE_WORDS:
        return PHASE_WORDS[phase]
    if name in _COLLECTION:
        return "garbage collection"
    return shorten(escape_unprintable(name), _NAME_WIDTH)


def _line(function: str, file: str, line: int) -> str:
    where = escape_unprintable(f"{file.rpartition('/')[2]}:{line}")
    return where if function == "<module>" else f"`{escape_unprintable(function)}`, {where}"


def slow_sentence(slow: SlowTransfers) -> str:
    """Return which transfers are slow, and how much slower than others."""
    longer, where = f"take {slow.ratio:.1f} times as long", _where_slow(slow)
    if slow.steps:
        return f"in {where} transfers between hosts {longer}: congestion"
    if len(slow.hosts) > 1:
        return f"transfers between {where} {longer} as others: their link"
    if slow.hosts:
        return f"transfers that cross {where} {longer} as others: its network card"
    if len(slow.ranks) > 1:
        return f"transfers among {where} {longer} as others"
    return f"transfers of {where} between hosts {longer} as others: its network card"


def _where_slow(slow: SlowTransfers) -> str:
    """Return the steps, hosts or ranks whose transfers are slow."""
    many = len(slow.steps)
    if many > _NAMED_STEPS:
        return f"{many} steps"
    if many:
        return f"step{'s' * (many > 1)} {' and '.join(map(numbered, slow.steps))}"
    return " and ".join(map(escape_unprintable, slow.hosts)) or rank_list(slow.ranks)


def takes(row: LedgerRow) -> str:
    """Return a headline on a row: what it takes of the step, and where."""
    if row.slow:
        return f"{capital(slow_sentence(row.slow))}."
    begin = _begin(row)
    whole = (f"{begin}: {where}." for where in places(row) if where)
    return next((one for one in whole if len(_UNIT.sub("", one).split()) <= _MOST_WORDS), f"{begin}.")


def _begin(row: LedgerRow) -> str:
    if row.cause == "late_ranks":
        delays = _DELAYS[row.late or "always"][len(row.ranks) > 1]
        who = capital(rank_list(row.ranks)) if len(row.ranks) <= _NAMED else f"{len(row.ranks)} ranks"
        if row.host:
            who, delays = f"Host {escape_unprintable(row.host)}", _DELAYS[row.late or "always"][0]
        return f"{who} {delays} {duration(row.ns)} ({whole_percent(row.share)})"
    if row.on_changing_ranks:
        size = f"{duration(row.ns)} ({whole_percent(row.share)})"
        return f"{capital(LABELS[row.cause])} on changing ranks delays each step by {size}"
    takes_share = _TAKES.get(row.cause, capital(LABELS[row.cause]) + " takes {share}")
    return takes_share.format(share=whole_percent(row.share))


def capital(text: str) -> str:
    """Return a text as the begin of a sentence."""
    return text[:1].upper() + text[1:]


def headline(row: LedgerRow, bound: str) -> str:
    """Return the verdict on a run, in at most fifteen words and two numbers."""
    if bound == "compute":
        return f"Nothing large to fix: {whole_percent(row.share)} is compute."
    if bound == "none":
        return f"No single large loss: {whole_percent(row.share)} is {LABELS[row.cause]}."
    return takes(row)


def paused(phase: PausePhase, caller: str | None, share: float) -> str:
    """Return the verdict on a run whose pauses take more than any part of its steps."""
    where = f": {escape_unprintable(caller)}" if caller else ""
    return f"{_PAUSES[phase]} {whole_percent(share)} of the time, besides the steps{where}."


def loses(row: LedgerRow, why: str, *, sized: bool) -> str:
    """Return the begin of a recommendation on a row, which has the place: its label, its time if asked for, and why."""
    return f"{capital(label(row))}{f', {duration(row.ns)}' if sized else ''}{f': {why}' if why else ''}"


SENTENCES: Final[Words] = {
    "in_code": _in_code,
    "is_it_loading": lambda name: f"{_in_code(name)}: is that loading?",
    "no_verdict": "no verdict: {why}",
    "zero_duration": "all steps have zero duration",
    "nothing_read": lambda reason: reason or "nothing was read",
    "no_device_activity": "device activity was not recorded",
    "several_jobs": "several traces claim one rank at one time: several jobs",
}
