"""`rank<R>.hang.json`: what a rank was doing when no step ended. A change to it bumps `RANK_STATE_VERSION`."""

from typing import Final

from msgspec import Struct

RANK_STATE_VERSION: Final = 1


class Frame(Struct, frozen=True, kw_only=True):
    """One function of a Python stack."""

    function: str
    file: str
    line: int


class ThreadStack(Struct, frozen=True, kw_only=True):
    """The Python stack of one thread."""

    thread: str
    frames: list[Frame]
    """Innermost first."""


class WorkerStack(Struct, frozen=True, kw_only=True):
    """The main thread of a process that the rank has forked, such as a loader worker."""

    pid: int
    frames: list[Frame]
    """Innermost first."""


class IssuedCollective(Struct, frozen=True, kw_only=True):
    """One collective, as torch's flight recorder saw it issued."""

    group: str
    """Name of the process group, the same on all its ranks."""
    description: str = ""
    """What the program calls the group."""
    seq: int
    """Number of the collective in its group."""
    op: str
    sizes: list[list[int]] = []
    """Shapes of the inputs."""
    dtype: str | None = None
    """Of the first input, in torch's name."""
    bytes: int | None = None
    """Of all inputs; None for an unknown type."""
    done: bool
    """Whether it has ended on this rank."""
    ns: int
    """Time of issue, Unix time in ns."""
    frames: list[Frame] = []
    """Where it was issued, innermost first."""


class GroupRanks(Struct, frozen=True, kw_only=True):
    """The ranks of a process group."""

    name: str
    ranks: list[int]


class RankState(Struct, frozen=True, kw_only=True):
    """What one rank was doing."""

    schema_version: int = RANK_STATE_VERSION
    rank: int
    world_size: int | None = None
    """None if unknown, as in torch's own dumps."""
    host: str = ""
    pid: int | None = None
    steps: int | None = None
    """Steps that had ended; None if unknown."""
    main: list[Frame] = []
    """Python stack of the main thread, innermost first; empty if unknown."""
    threads: list[ThreadStack] = []
    """Of the other threads."""
    workers: list[WorkerStack] = []
    groups: list[GroupRanks] = []
    collectives: list[IssuedCollective] | None = None
    """In order of issue, the last ones; None if there is no record of them."""
    ended: str | None = None
    """How the rank's process has ended, or why it cannot write this; None if it runs."""
