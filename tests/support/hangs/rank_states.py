"""What ranks of a made-up job left, call by call."""

from collections.abc import Mapping, Sequence

from perfkit.engine.hangs import rules
from perfkit.records.hang import Diagnosis, Frame, GroupRanks, IssuedCollective, RankState
from perfkit.report.wording import worded


def frame(file: str, line: int, function: str) -> Frame:
    return Frame(file=f"/job/{file}", line=line, function=function)


def call(
    seq: int,
    op: str = "all_reduce",
    *,
    group: str = "dp",
    done: bool = False,
    elements: int = 1000,
    dtype: str = "float32",
    line: int = 10,
) -> IssuedCollective:
    return IssuedCollective(
        group=group,
        description=group,
        seq=seq,
        op=op,
        sizes=[[elements]],
        dtype=dtype,
        bytes=4 * elements,
        done=done,
        ns=seq * 1000 + line,
        frames=[frame("train.py", line, "train")],
    )


def state(
    rank: int,
    *calls: IssuedCollective,
    groups: dict[str, list[int]] | None = None,
    main: list[Frame] | None = None,
    world_size: int = 4,
    ended: str | None = None,
) -> RankState:
    waits_in = list(calls[-1].frames) if calls else [frame("train.py", 10, "train")]
    members = {"dp": list(range(world_size))} if groups is None else groups
    return RankState(
        rank=rank,
        world_size=world_size,
        steps=5,
        main=main or waits_in,
        groups=[GroupRanks(name=name, ranks=ranks) for name, ranks in members.items()],
        collectives=list(calls),
        ended=ended,
    )


def diagnose(path: str, states: Sequence[RankState], *, absent: Mapping[int, str] | None = None) -> Diagnosis:
    """Return a diagnosis in words."""
    return worded(rules.diagnose(path, states, absent=absent))
