"""What a rank was doing when no step ended, and the result of `perfkit diagnose`.

A change to `rank<R>.hang.json` bumps `RANK_STATE_VERSION`, one to the diagnosis `DIAGNOSIS_VERSION`, one to
`hangs.json` `HANG_LOG_VERSION`.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

RANK_STATE_VERSION: Final = 2

MOST_RANKS: Final = 1_000_000
Rank = Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
Whole = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""An integer that can be encoded again; a file with a larger one cannot be read."""


class Frame(Struct, frozen=True, kw_only=True):
    """One function of a Python stack."""

    function: str
    file: str
    line: Whole


class ThreadStack(Struct, frozen=True, kw_only=True):
    """The Python stack of one thread."""

    thread: str
    frames: list[Frame]
    """Innermost first."""


class WorkerStack(Struct, frozen=True, kw_only=True):
    """The main thread of a process that the rank has forked, such as a loader worker."""

    pid: Whole
    frames: list[Frame]
    """Innermost first."""


class IssuedCollective(Struct, frozen=True, kw_only=True):
    """One collective, as torch's flight recorder saw it issued."""

    group: str
    """Name of the process group, the same on all its ranks."""
    description: str = ""
    """What the program calls the group."""
    seq: Whole
    """Number of the collective in its group."""
    op: str
    sizes: list[list[Whole]] = []
    """Shapes of the inputs."""
    dtype: str | None = None
    """Of the first input, in torch's name."""
    bytes: Whole | None = None
    """Of all inputs; None for an unknown type."""
    done: bool
    """Whether it has ended on this rank."""
    ns: Whole
    """Time of issue, Unix time in ns."""
    frames: list[Frame] = []
    """Where it was issued, innermost first."""


class GroupRanks(Struct, frozen=True, kw_only=True):
    """The ranks of a process group."""

    name: str
    ranks: list[Rank]


MessageKind = Literal["send", "recv"]


class MessageCount(Struct, frozen=True, kw_only=True):
    """How many messages a rank has issued to, or from, another one."""

    kind: MessageKind
    group: str
    """Name of the process group."""
    peer: Rank | None
    """None: receives from any rank."""
    count: Whole


class AwaitedMessage(Struct, frozen=True, kw_only=True):
    """The send or receive that the main thread waits for."""

    kind: MessageKind
    group: str
    """Name of the process group."""
    description: str
    """What the program calls the group, or its name."""
    peer: Rank | None
    """None: a receive from any rank."""
    tag: Whole = 0
    number: Whole
    """Among those of its kind to or from the peer in the group; of a receive from any rank, among all receives."""


class RankState(Struct, frozen=True, kw_only=True):
    """What one rank was doing."""

    schema_version: int = RANK_STATE_VERSION
    rank: Rank
    world_size: Annotated[int, Meta(ge=1, le=MOST_RANKS)] | None = None
    """None if unknown, as in torch's own dumps."""
    host: str = ""
    pid: Whole | None = None
    steps: Whole | None = None
    """Steps that had ended; None if unknown."""
    main: list[Frame] = []
    """Python stack of the main thread, innermost first; empty if unknown."""
    threads: list[ThreadStack] = []
    """Of the other threads."""
    workers: list[WorkerStack] = []
    groups: list[GroupRanks] = []
    collectives: list[IssuedCollective] | None = None
    """In order of issue, the last ones; None if there is no record of them."""
    in_message: bool = False
    """Whether a send or a receive between two ranks has not ended, or the main thread is inside one."""
    messages: list[MessageCount] | None = None
    """Sends and receives between two ranks; None if they were not counted."""
    awaits: AwaitedMessage | None = None
    """None if the main thread waits for no message, or it is not known for which."""
    paused: bool = False
    """Whether the rank writes a trace or a checkpoint, or evaluates."""
    request: Whole | None = None
    """Number of the last request of the run that the rank has answered; None if unknown, or none."""
    resumed: bool = False
    """Whether a step has ended since: the rank has gone on."""
    awaits_workers: bool = False
    """Whether the stacks of forked processes were asked for, and are not in it yet."""
    ended: str | None = None
    """How the rank's process has ended, or why it cannot write this; None if it runs."""


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


HANG_LOG_VERSION: Final = 1


class NoticedHang(Struct, frozen=True, kw_only=True):
    """No step ended for long, and the run was not ended for that."""

    noticed_at: str
    """ISO 8601, UTC."""
    step: Whole
    """The step that did not end, on the rank that noticed it."""
    idle_ns: Whole
    """Since the step before had ended, or the run begun: it goes on afterwards."""
    ranks: list[Rank] = []
    """Ranks that the others waited for; empty if unknown."""
    headline: str
    """That of the diagnosis."""


class HangLog(Struct, frozen=True, kw_only=True):
    """`hangs.json`: the hangs of a run, in order of time."""

    schema_version: int = HANG_LOG_VERSION
    hangs: list[NoticedHang]
