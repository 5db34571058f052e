"""The critical path of a run's steps (metrics.md section 16)."""

from typing import Literal

from msgspec import Struct

from perfkit.records.per_rank.idle import Cause

PathKind = Literal["compute", "communication", "memcpy", "data_loading", "host"] | Cause
"""What the path runs through: work as in the categories (`host`: operators and runtime calls beside a device), and
causes as those of idle time. Lags between kernels are `dependency`, those from launch to start are `launch_bound`."""


class PathKindTime(Struct, frozen=True, kw_only=True, gc=False):
    """Time of one kind on the path."""

    kind: PathKind
    total_ns: int


class PathRankTime(Struct, frozen=True, kw_only=True, gc=False):
    """Time of one rank on the path; that of lags between ranks is the later one's."""

    rank: int
    total_ns: int


class PathNameTime(Struct, frozen=True, kw_only=True, gc=False):
    """Time on the path by what ran."""

    kind: PathKind
    name: str
    """Kernel, operator, collective, annotation or Python function; or a sentence where the trace names nothing."""
    total_ns: int


class PathModuleTime(Struct, frozen=True, kw_only=True, gc=False):
    """Time on the path of a module, with what it calls (metrics.md section 20)."""

    depth: int
    """0 for roots; what a module calls follows it with one more."""
    name: str
    """As in the trees of work by class; `(optimizer)` and the like are of no module."""
    total_ns: int
    """Including the nodes below it."""
    self_ns: int


class PathSpan(Struct, frozen=True, kw_only=True, gc=False):
    """A part of the path that runs on one rank, and is of one kind."""

    rank: int
    kind: PathKind
    name: str
    """The longest piece of it."""
    start_ns: int
    """Since the last rank began the step."""
    ns: int


class DrawnPath(Struct, frozen=True, kw_only=True):
    """The path of one step, to draw."""

    step: int | None
    """Number of the step, of those in the graph the one of median length."""
    total_ns: int
    cell_ns: int = 0
    """With more than 300 changes of rank or kind, a span shows what takes most of each cell of this length."""
    spans: list[PathSpan]
    """In order of time, one after the other: they add up to `total_ns`."""


class CommunicationSlack(Struct, frozen=True, kw_only=True, gc=False):
    """Collectives of one operator and dimension: on the path, and how much longer they could take."""

    operator: str
    dimension: str | None
    """None if unknown."""
    count: int
    """Collectives, sends and receives of all ranks."""
    transfer_ns: int
    """Summed time without waiting for matched ranks."""
    path_ns: int
    """Of this on the path."""
    never_waited_for: int
    """How many of them the end of the last step does not depend on."""
    slack_ns: int | None
    """How much longer the median one, alone, could take without delaying the end of the last step; None if the end
    depends on none of them."""


class CriticalPath(Struct, frozen=True, kw_only=True):
    """The chain of work and waiting that decided how long some steps took."""

    steps: list[int | None]
    """Numbers of the steps; consecutive."""
    recorded_steps: int
    """How many were recorded: with many events, the graph has some steps in the middle."""
    total_ns: int
    """From when all ranks have begun the first of these steps to when all have ended the last. The times by kind, those
    by rank, by name, and by module add up to it."""
    kinds: list[PathKindTime]
    """Largest first, as are the others."""
    ranks: list[PathRankTime]
    names: list[PathNameTime]
    """At most 100, and one per kind for all others."""
    communication: list[CommunicationSlack]
    modules: list[PathModuleTime] = []
    """By module in depth-first order: at most 60, and `(others)`; empty if the traces contain no calls of modules. The
    roots add up to `total_ns`."""
    drawn: DrawnPath | None = None
    """None if nothing of it takes time."""
    linked: bool | None = None
    """Whether a matched collective, send or receive links the ranks; None for a single rank."""
    missing_ranks: int = 0
    """Ranks of the world without a trace: where others waited for these, that time is part of the transfers."""
    unaligned_ranks: list[int] = []
    """Ranks that are left out because no collective links their clocks to the others'."""
    violated: int = 0
    """Dependencies that the measured times contradict, which are left out."""
