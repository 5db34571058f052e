"""`--trace-ranks`: which ranks of a run record everything; the others leave light traces."""

from collections.abc import Mapping
from typing import Final

from perfkit.errors import UsageError

PER_HOST: Final = "per-host"
PER_STAGE: Final = "per-stage"


def check_trace_ranks(text: str | None, detail: str) -> None:
    """Refuse an invalid value, and one that has no effect.

    Raises:
        UsageError: The message names the option.
    """
    if text is None:
        return
    _ = _numbers(text)
    if detail == "light":
        raise UsageError(f"--trace-ranks {text} has no effect with --detail light: remove one of them")


def refuse_stages(text: str | None) -> None:
    """Refuse the choice by pipeline stages, for programs whose stages are not known.

    Raises:
        UsageError: It is asked for.
    """
    if text == PER_STAGE:
        raise UsageError(f"--trace-ranks {PER_STAGE} needs a pipeline of a workload (pp in --mesh): list ranks instead")


def is_light(
    text: str | None, detail: str, *, rank: int, local_rank: int, mesh: Mapping[str, int] | None = None
) -> bool:
    """Return whether a rank leaves a light trace.

    Args:
        text: The option; None is all ranks.
        detail: What the ranks record.
        local_rank: Number of the rank among those of its host.
        mesh: Size of each dimension of the mesh of ranks, outermost first; None if unknown.

    Raises:
        UsageError: The run has no known pipeline.
    """
    if text is None:
        return detail == "light"
    if text == PER_HOST:
        return local_rank > 0
    if text == PER_STAGE:
        return _is_behind_first_of_stage(rank, mesh or {})
    return rank not in _numbers(text)


def check_ranks_exist(text: str | None, world_size: int) -> None:
    """Refuse ranks that the run does not have.

    Raises:
        UsageError: One of them is listed.
    """
    if text is not None and max(_numbers(text), default=0) >= world_size:
        raise UsageError(f"--trace-ranks {text}: this run has ranks 0 to {world_size - 1}")


def _numbers(text: str) -> frozenset[int]:
    """Return the ranks that are listed; none if they are chosen by their place."""
    if text in (PER_HOST, PER_STAGE):
        return frozenset()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() and len(part) < 10 for part in parts):
        raise UsageError(f"--trace-ranks {text}: write ranks as 0,7, or {PER_HOST} or {PER_STAGE}")
    return frozenset(map(int, parts))


def _is_behind_first_of_stage(rank: int, mesh: Mapping[str, int]) -> bool:
    if mesh.get("pp", 1) == 1:
        raise UsageError(f"--trace-ranks {PER_STAGE} needs a pipeline of a workload (pp in --mesh): list ranks instead")
    for name, size in reversed([*mesh.items()]):
        rank, position = divmod(rank, size)
        if position and name != "pp":
            return True
    return False
