"""Result of `perfkit diagnose`. A change to it bumps `DIAGNOSIS_VERSION`."""

from typing import Final, Literal

from msgspec import Struct

from perfkit.schema.hang.rank_state import Frame

DIAGNOSIS_VERSION: Final = 1

FaultKind = Literal["not_issued", "operator", "size", "dtype", "deadlock", "gone"]
"""`not_issued`: ranks wait in a collective that another rank has not issued; `operator`, `size`, `dtype`: ranks issued
different collectives under one number of a group; `deadlock`: ranks wait for each other in different groups; `gone`: a
rank has ended or is stopped, and no rank's record shows who waits for it."""

Verdict = Literal["agree", "fault", "unknown"]
"""`agree`: no rank waits for another that is elsewhere; `fault`: see `faults`; `unknown`: too little was recorded."""


class Fault(Struct, frozen=True, kw_only=True):
    """One thing that keeps ranks from going on."""

    kind: FaultKind
    message: str
    group: str | None = None
    """What the program calls the process group, or its name."""
    seq: int | None = None
    """Number of the collective in its group."""
    op: str | None = None
    ranks: list[int]
    """The ranks that differ: that have not issued it, or issued something else."""
    waiting: list[int] = []
    """The ranks that wait for them."""


class RankPlace(Struct, frozen=True, kw_only=True):
    """Where one rank was."""

    rank: int
    steps: int | None
    state: str
    """In words."""
    frame: Frame | None
    """The innermost function of the program; None if unknown."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """`perfkit diagnose`: which ranks wait for which, and where these are."""

    schema_version: int = DIAGNOSIS_VERSION
    perfkit_version: str
    path: str
    verdict: Verdict
    headline: str
    world_size: int | None
    faults: list[Fault]
    """The cause first, as far as it can be told."""
    ranks: list[RankPlace]
    unread: list[str]
    """Files that could not be read, and why; ranks that left no file."""
