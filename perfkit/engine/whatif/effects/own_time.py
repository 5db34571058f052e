"""Changes of what ranks do by themselves: operators and kernels, idle time, input, a rank's whole work."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from perfkit.base.formatting import ranges
from perfkit.engine.step_graph.graph import (
    COMMUNICATION,
    COMPUTE,
    DATA_LOADING,
    FIRST_CAUSE,
    HOST,
    KINDS,
    MEMCPY,
    StepGraph,
)
from perfkit.engine.whatif.altered import Altered, Floats, Mask
from perfkit.engine.whatif.changes import RemoveProfiler, ScaleCompute, ScaleIdle, ScaleInput, ScaleRank
from perfkit.engine.whatif.effects.effect import (
    Effect,
    Subject,
    calls_of_cause,
    matches,
    names_by_time,
    nothing_matches,
    parts_named,
    rank_of_parts,
    time_per_step,
)
from perfkit.errors import UsageError
from perfkit.trace.intervals import Ints

_PROFILER: Final = KINDS.index("profiler")


def scale_compute(subject: Subject, change: ScaleCompute) -> Effect:
    """Scale kernels and copies by name, or operators of the host.

    Raises:
        UsageError: nothing has such a name.
    """
    state, graph = subject.state, subject.state.graph
    work = np.isin(graph.parts.kind, (HOST, COMPUTE, MEMCPY))
    named = parts_named(graph, change.pattern, work)
    launched = _launched_by(graph, change.pattern)
    chosen = (named & (graph.parts.kind != HOST)) | launched
    assumptions = ["everything else takes as long as before"]
    if launched.any():
        assumptions = ["the kernels that these operators launch change, not the host's part of them"]
    elif not chosen.any():
        chosen = named
        assumptions = ["only the host's part of these operators changes: they launch no kernel themselves"]
    if not chosen.any():
        raise nothing_matches(subject.text, "operator or kernel", names_by_time(graph, work))
    names = len(np.unique(graph.parts.name[chosen]))
    what = "1 name" if names == 1 else f"{names} names"
    return Effect(
        state.scaled(chosen, change.factor), f"{what}, {time_per_step(graph, state.part_ns, chosen)}", assumptions
    )


def _launched_by(graph: StepGraph, pattern: str) -> Mask:
    """Return the parts that are kernels or copies which operators of a name launched."""
    named = np.append(matches(pattern, graph.names), False)[graph.nodes.name]
    work = np.isin(graph.nodes.kind, (COMPUTE, MEMCPY)) & named
    return np.asarray(work[graph.parts.node])


def scale_input(subject: Subject, change: ScaleInput) -> Effect:
    """Scale the time in which the main thread loads data, or waits for it.

    Raises:
        UsageError: the trace shows no loading.
    """
    state, graph = subject.state, subject.state.graph
    chosen = graph.parts.kind == DATA_LOADING
    if not chosen.any():
        raise nothing_matches(subject.text, "data loading", [])
    assumption = "loader workers, if any, keep up with the shorter step"
    return Effect(state.scaled(chosen, change.factor), time_per_step(graph, state.part_ns, chosen), [assumption])


def scale_idle(subject: Subject, change: ScaleIdle) -> Effect:
    """Scale idle time of the host, by cause or by what ran.

    Raises:
        UsageError: there is none of this name.
    """
    state, graph = subject.state, subject.state.graph
    idle = graph.parts.kind >= FIRST_CAUSE
    by_cause = matches(change.pattern, KINDS)
    by_cause[:FIRST_CAUSE] = False
    calls = calls_of_cause(graph, change.pattern)
    chosen = (idle & by_cause[graph.parts.kind]) | parts_named(graph, change.pattern, idle) | calls
    if not chosen.any():
        time = np.bincount(graph.parts.kind[idle], weights=state.part_ns[idle], minlength=len(KINDS))
        causes = [KINDS[kind] for kind in np.argsort(-time, kind="stable").tolist() if time[kind]]
        raise nothing_matches(subject.text, "idle time", [*causes, *names_by_time(graph, idle)])
    assumptions = ["what else the thread does takes as long as before"]
    if calls.any():
        assumptions.append("calls that allocate or compile change beside a busy device, too")
    return Effect(state.scaled(chosen, change.factor), time_per_step(graph, state.part_ns, chosen), assumptions)


def remove_profiler(subject: Subject, change: RemoveProfiler) -> Effect:  # noqa: ARG001  it has no options
    """Take the profiler's own work off the host.

    Raises:
        UsageError: the trace shows none.
    """
    state, graph = subject.state, subject.state.graph
    chosen = graph.parts.kind == _PROFILER
    if not chosen.any():
        raise nothing_matches(subject.text, "work of the profiler", [])
    assumption = "what the profiler adds to each operator is not in the trace, and stays"
    return Effect(state.scaled(chosen, 0.0), time_per_step(graph, state.part_ns, chosen), [assumption])


def scale_rank(subject: Subject, change: ScaleRank) -> Effect:
    """Scale a rank's own work, or have it take as long as the other ranks'.

    Raises:
        UsageError: the rank has no trace, or no other has.
    """
    state, graph = subject.state, subject.state.graph
    if change.rank not in graph.ranks:
        raise UsageError(
            f"change {subject.text}: there is no trace of rank {change.rank}, but of {ranges(graph.ranks)}"
        )
    own = (rank_of_parts(graph) == change.rank) & (graph.parts.kind != COMMUNICATION)
    time = time_per_step(graph, state.part_ns, own).partition(" on ")[0]
    if change.factor is not None:
        return Effect(state.scaled(own, change.factor), f"its own work, {time}", ["transfers take as long as before"])
    if len(graph.ranks) == 1:
        raise UsageError(f"change {subject.text}: there are no traces of other ranks to compare with")
    measure = [one for one in graph.ranks if one not in {change.rank, *subject.healthy}]
    of = "the other ranks" if len(measure) == len(graph.ranks) - 1 else f"ranks {ranges(measure)}"
    if len(measure) == 1 < len(graph.ranks) - 1:
        of = f"rank {measure[0]}"
    takes = f"the median of {of}" if measure else "that of the rank with the lower median of all own times"
    assumptions = [f"each operator, kernel and cause of idle time takes {takes} in the same step"]
    return Effect(state.scaled(own, _as_others(state, own, measure)), f"its own work, {time}", assumptions)


def _as_others(state: Altered, own: Mask, measure: Sequence[int]) -> Floats:
    """Return the factor of each part of a rank that makes each name's time per step that of others.

    Args:
        state: the graph with its times.
        own: the parts of the rank.
        measure: the ranks whose median counts; without any, because all ranks are to be healthy, one of all in each
            step: that with the lower median of all own times. If they take turns at being late, it is not the late one.
    """
    graph = state.graph
    known = np.array(measure or graph.ranks)
    others = (graph.parts.kind != COMMUNICATION) & np.isin(rank_of_parts(graph), known)
    code = _codes(graph, own | others)
    keys, place = np.unique(code[own], return_inverse=True)
    now = np.bincount(place, weights=state.part_ns[own], minlength=len(keys))
    alike = np.flatnonzero(others & np.isin(code, keys))
    row = np.searchsorted(known, rank_of_parts(graph)[alike])
    where = row * len(keys) + np.searchsorted(keys, code[alike])
    total = np.bincount(where, weights=state.part_ns[alike], minlength=len(known) * len(keys))
    total = total.reshape(len(known), len(keys))
    if measure:
        target = np.median(total, axis=0)
    else:
        step = graph.nodes.step[graph.parts.node[own]][np.unique(place, return_index=True)[1]]
        target = total[_usual_rank(state)[step], np.arange(len(keys))]
    factor: Floats = np.divide(target, now, out=np.ones(len(keys)), where=now > 0)[place]
    return factor


def _usual_rank(state: Altered) -> Ints:
    """Return the place of the rank with the lower median of all ranks' own times in each step, shape (steps,)."""
    graph = state.graph
    rank = rank_of_parts(graph)
    own = np.flatnonzero((graph.parts.kind != COMMUNICATION) & (rank >= 0))
    where = (
        np.searchsorted(np.array(graph.ranks), rank[own]) * len(graph.steps) + graph.nodes.step[graph.parts.node[own]]
    )
    total = np.bincount(where, weights=state.part_ns[own], minlength=len(graph.ranks) * len(graph.steps))
    order = np.argsort(total.reshape(len(graph.ranks), -1), axis=0, kind="stable")
    usual: Ints = order[(len(graph.ranks) - 1) // 2]
    return usual


def _codes(graph: StepGraph, among: Mask) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number for the step, kind and name of each part, and for its place among them if all ranks have as many.

    What runs several times in a step may be longer in one place only, and that is where the others wait.

    Args:
        graph: the graph.
        among: the parts of the ranks that are compared; the numbers of others mean nothing.
    """
    step = graph.nodes.step[graph.parts.node].astype(np.int64) + 1
    code: np.ndarray[tuple[int], np.dtype[np.int64]] = (step * len(KINDS) + graph.parts.kind) * (
        len(graph.names) + 1
    ) + (graph.parts.name + 1)
    parts = np.flatnonzero(among)
    number = _numbers(code[parts], rank_of_parts(graph)[parts], graph.nodes.start[graph.parts.node[parts]])
    code *= int(number.max(initial=0)) + 1
    code[parts] += number
    return code


def _numbers(code: Ints, rank: Ints, start: Ints) -> Ints:
    """Return which of its rank's parts of this code each part is, in order of time; 0 where ranks have not as many."""
    order = np.lexsort((start, rank, code))
    first = np.flatnonzero((np.diff(code[order], prepend=-1) != 0) | (np.diff(rank[order], prepend=-1) != 0))
    count = np.diff(np.append(first, len(order)))
    _, earliest, of_code = np.unique(code[order[first]], return_index=True, return_inverse=True)
    alike = np.bincount(of_code) == len(np.unique(rank))
    alike[of_code[count != count[earliest][of_code]]] = False
    number = np.zeros(len(order), np.int64)
    number[order] = (np.arange(len(order)) - np.repeat(first, count)) * np.repeat(alike[of_code], count)
    return number
