"""Tell which ranks are at the same stage of a pipeline: stages differ by design, so only these can be compared.

A rank that is late stalls its tensor-parallel peers at once, its neighbours in the pipeline next, and its data-parallel
peers at the end of backward. All of them wait in communication, which is no part of a rank's own time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.pipelines.groups import find_pipeline_groups
from perfkit.engine.ranks.lateness import OwnTimes
from perfkit.records.manifest import MeshDimension
from perfkit.trace.intervals import Ints


def find_stages(mesh: Sequence[MeshDimension], kinds: Iterable[CollectiveKey]) -> dict[int, int]:
    """Return the position of each rank in its pipeline; empty without one, or if its members are unknown.

    Args:
        mesh: the run's mesh; empty if unknown.
        kinds: the collectives of all ranks, of which those of pipelines may list the members.
    """
    stage_of: dict[int, int] = {}
    for line in find_pipeline_groups(mesh, kinds):
        for stage, rank in enumerate(line if len(line) > 1 else ()):
            stage_of.setdefault(rank, stage)
    return stage_of


def comparable_parts(times: OwnTimes, stage_of: Mapping[int, int]) -> list[OwnTimes]:
    """Return the own times in parts, within which ranks can be compared: those of each stage.

    Ranks that are alone at their stage are one part, without what is usual for each: the median over steps of a
    category is the same for all of them. So a rank that is always late is not told from a heavier stage, but one that
    is late in some steps is.

    Args:
        times: own times of all ranks.
        stage_of: stage of each rank; empty without a pipeline.
    """
    places: dict[int | None, list[int]] = defaultdict(list)
    for place, rank in enumerate(times.ranks):
        places[stage_of.get(rank)].append(place)
    if len(places) < 2:
        return [times]
    alone = sorted(place for several in places.values() if len(several) == 1 for place in several)
    parts = [_part(times, several, times.exposed_ns[several]) for several in places.values() if len(several) > 1]
    if len(alone) > 1:
        parts.append(_part(times, alone, _without_usual(times.exposed_ns[alone])))
    return parts


def level_stages(times: OwnTimes, stage_of: Mapping[int, int]) -> OwnTimes:
    """Return the own times of all ranks without what is usual for their stage, so that single steps can be compared.

    Ranks of several stages may be late in one step: none of them alone delays the others then, so all are named.
    """
    stages = np.array([stage_of.get(rank, -1) for rank in times.ranks])
    if len(np.unique(stages)) < 2:
        return times
    exposed = times.exposed_ns.astype(np.float64)
    usual = {stage: np.median(exposed[stages == stage], axis=(0, 1)) for stage in np.unique(stages).tolist()}
    typical = np.median(np.stack(list(usual.values())), axis=0)
    for stage, own in usual.items():
        exposed[stages == stage] += typical - own
    return times._replace(exposed_ns=np.rint(exposed).astype(np.int64))


def _part(times: OwnTimes, places: list[int], exposed_ns: Ints) -> OwnTimes:
    messages_ns = None if times.messages_ns is None else times.messages_ns[places]
    return OwnTimes([times.ranks[place] for place in places], times.steps, exposed_ns, times.compared, messages_ns)


def _without_usual(exposed_ns: Ints) -> Ints:
    """Return times of shape (ranks, steps, categories) with the same median over steps for every rank."""
    usual = np.median(exposed_ns, axis=1, keepdims=True)
    return np.asarray(np.rint(exposed_ns - usual + np.median(usual, axis=0, keepdims=True)), np.int64)
