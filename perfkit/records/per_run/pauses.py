"""Pauses of training: checkpoints, evaluations and logging, which are no part of a step (metrics.md section 23)."""

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

PausePhase = Literal["checkpoint", "evaluation", "logging"]
PAUSE_PHASES: Final[tuple[PausePhase, ...]] = get_args(PausePhase)
_Whole = Annotated[int, Meta(ge=-(2**61), le=2**61)]
_Natural = Annotated[int, Meta(ge=0, le=2**61)]

MOST_CALLER: Final = 300
"""Longest text of a caller."""


class RecordedPause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pause of a rank, by the clock of its host."""

    phase: PausePhase
    step: _Whole
    """Number of steps that were completed before."""
    begin_ns: _Whole
    """Absolute."""
    end_ns: _Whole
    bytes: _Whole | None = None
    """Bytes of a checkpoint that this rank wrote; None if unknown."""
    asynchronous: bool = False
    """Whether writing goes on after `end_ns`, beside the steps."""
    caller: Annotated[str, Meta(max_length=MOST_CALLER)] | None = None
    """Line and function of the program that it was called from, as in `train.py:88 save`; None if unknown."""


class EarlierPauses(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pauses of one phase on one rank that are not listed any more, added up."""

    phase: PausePhase
    count: _Natural
    total_ns: _Natural
    max_ns: _Natural
    bytes: _Natural | None = None
    """Bytes of all of them that are known; None if none is."""
    asynchronous: _Natural = 0
    """How many of them wrote on beside the steps."""


class RankPauses(Struct, frozen=True, kw_only=True):
    """Pauses of one phase on one rank."""

    phase: PausePhase
    rank: int | None
    count: int
    total_ns: int
    max_ns: int
    bytes: int | None = None
    """Bytes of all of them that are known; None if none is."""
    asynchronous: int = 0
    """How many of them wrote on beside the steps."""
    caller: str | None = None
    """As in `RecordedPause`, of the longest one that is listed with it; None if unknown."""
    steps: int | None = None
    """Number of steps in which they are: those that the rank completed in the whole run. None if `run.json` lists none
    of them: then only those in traces are known."""
    recorded: int = 0
    """How many of them are within recorded steps."""
    recorded_ns: int = 0
    """Their time within the windows of recorded steps, which it is taken off."""
    waited_ns: int | None = None
    """How long the others wait for them: exposed communication until this rank meets them again, beyond the usual and
    outside of their own pauses, of the rank that waits most; None if clocks are not aligned, or for a single rank."""
