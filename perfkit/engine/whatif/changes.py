"""All kinds of changes: one row each, and the one parser of their text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.change import Change, ChangeError
from perfkit.engine.whatif.effects.compute import ScaleCompute
from perfkit.engine.whatif.effects.device import FuseKernels, RemoveSync, ScaleCopies
from perfkit.engine.whatif.effects.gradients import Accumulate, BucketCap, NoSync, RemoveOverlap
from perfkit.engine.whatif.effects.host import RemoveProfiler, ScaleIdle, ScaleInput
from perfkit.engine.whatif.effects.modules import ScaleModule
from perfkit.engine.whatif.effects.ranks import ScaleRank
from perfkit.engine.whatif.effects.transfers import (
    UNKNOWN_DIMENSION,
    HealthyNetwork,
    Ranks,
    ScaleBandwidth,
    ScaleCollective,
)
from perfkit.records.facts import fact
from perfkit.records.run import RunReport

CHANGES: Final[tuple[type[Change], ...]] = (
    ScaleCompute,
    ScaleModule,
    ScaleRank,
    ScaleInput,
    ScaleIdle,
    RemoveProfiler,
    ScaleCopies,
    RemoveSync,
    FuseKernels,
    ScaleCollective,
    ScaleBandwidth,
    HealthyNetwork,
    Ranks,
    NoSync,
    BucketCap,
    RemoveOverlap,
    Accumulate,
)
"""In the order in which changes are made: those of the order of nodes come after those of times."""

NO_INPUT: Final = "input=0"
NO_COPIES: Final = "copies=0"
HEALTHY_NETWORK: Final = HealthyNetwork.example
NO_SYNCHRONISATION: Final = "sync=removed"
REDUCED_ONCE: Final = NoSync.example


def healthy_ranks(ranks: Iterable[int]) -> str:
    """Return the changes that make ranks work as fast as the others."""
    return " ".join(f"rank{rank}=healthy" for rank in sorted(ranks))


def free_transfers(dimension: str | None) -> str:
    """Return the change that makes the transfers of a dimension take no time."""
    return f"collective[{dimension or UNKNOWN_DIMENSION}]=0"


def no_idle(name: str) -> str:
    """Return the change that removes the idle time of a cause, or with a detail."""
    return f"idle:{name}=0"


def parse_change(text: str) -> Change:
    """Return the change that a text such as `compute:aten::mm=0.5x` describes.

    Raises:
        ChangeError: it describes none.
    """
    subject, _, value = text.rpartition("=")
    if text == REDUCED_ONCE:  # has no value
        subject, value = text, ""
    for kind in CHANGES:
        if match := re.fullmatch(kind.subject, subject, re.DOTALL):
            try:
                return kind.read(match[1], value)
            except ChangeError as error:
                error.change = text
                raise
    raise ChangeError(fact("no_such_change", examples=[kind.example for kind in CHANGES]), text)


def parse_changes(texts: Sequence[str]) -> list[Change]:
    """Return the changes of several texts, in order.

    Raises:
        ChangeError: one describes no change, or two contradict each other.
    """
    changes = [parse_change(text) for text in texts]
    for kind in CHANGES:
        same = [text for text, one in zip(texts, changes, strict=True) if isinstance(one, kind)]
        if kind.is_single and len(same) > 1:
            raise ChangeError(fact("contradict", changes=same))
    return changes


def candidates(graph: StepGraph, run: RunReport) -> Iterator[str]:
    """Yield the single changes to try where none is given: all that the run's time consists of."""
    yield from dict.fromkeys(text for kind in CHANGES for text in kind.candidates(graph, run))


def help_lines() -> list[tuple[str, str]]:
    """Return how each kind of change is written, and what it changes."""
    return [(kind.examples or kind.example, kind.help) for kind in CHANGES]
