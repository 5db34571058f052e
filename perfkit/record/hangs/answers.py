"""What the ranks have left in answer to a request: which have answered it, and which have gone on since."""

from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from perfkit.engine.hangs.folder import STATE_NAME


class _Head(Struct, frozen=True):
    """The fields of a `RankState` that show whether it is an answer; the others are not decoded."""

    request: int | None = None
    resumed: bool = False
    awaits_workers: bool = False
    paused: bool = False
    ended: str | None = None


class Answers(NamedTuple):
    """Ranks by what they have left."""

    missing: set[int]
    """Have not answered."""
    incomplete: set[int]
    """Have answered, but still wait for what their loader workers do."""
    resumed: set[int]
    """Have ended a step since they answered."""
    paused: set[int]
    """Write a trace or a checkpoint, or evaluate."""


def read_answers(folder: Path, ranks: set[int], request: int) -> Answers:
    """Return which of the ranks have answered a request of the run; an earlier answer does not count."""
    heads = {rank: _read_head(folder, rank) for rank in ranks}
    answered = {
        rank: head
        for rank, head in heads.items()
        if head is not None and (head.ended is not None or (head.request is not None and head.request >= request))
    }
    return Answers(
        missing=ranks - answered.keys(),
        incomplete={rank for rank, head in answered.items() if head.awaits_workers},
        resumed={rank for rank, head in answered.items() if head.resumed},
        paused={rank for rank, head in answered.items() if head.paused},
    )


def _read_head(folder: Path, rank: int) -> _Head | None:
    try:
        return msgspec.json.decode((folder / STATE_NAME.format(rank)).read_bytes(), type=_Head)
    except (OSError, msgspec.DecodeError):
        return None
