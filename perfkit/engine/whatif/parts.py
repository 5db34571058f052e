"""Choose parts of a graph by name, and say what they take."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import Altered, Mask
from perfkit.engine.whatif.change import ChangeError
from perfkit.records.facts import Facts, fact
from perfkit.trace.intervals import Ints

_LONGEST: Final = 60
"""Characters of a name that is written in full."""
_LEAST: Final = 12
_PUNCTUATION: Final = "<(, "
"""Where the name of a kernel may be cut."""


def matches(pattern: str, names: Iterable[str]) -> Mask:
    """Return which names equal a pattern, or match it as a glob."""
    return np.array([name == pattern or fnmatchcase(name, pattern) for name in names], np.bool_)


def parts_named(graph: StepGraph, pattern: str, among: Mask) -> Mask:
    """Return which of the parts in `among` have a name that matches, or a scope with one that does."""
    named = np.append(matches(pattern, graph.names), False)  # -1 is no name
    scoped = np.array([*(bool(matches(pattern, scope).any()) for scope in graph.scopes), False])
    return np.asarray(among & (named[graph.parts.name] | scoped[graph.parts.scope]))


def glob_of(name: str, names: Sequence[str]) -> str:
    """Return a name, or of a long one its shortest beginning as a glob that no other name matches.

    The name of a kernel may be hundreds of characters of template arguments.
    """
    ends = (place for place in range(_LEAST, min(len(name), _LONGEST)) if name[place] in _PUNCTUATION)
    for end in ends if len(name) > _LONGEST else ():
        pattern = f"{name[:end]}*"
        if int(matches(pattern, names).sum()) == 1 and fnmatchcase(name, pattern):
            return pattern
    return name


def nothing_matches(what: str, has: Sequence[str]) -> ChangeError:
    """Return the error of a change that nothing in the run matches.

    Args:
        what: fact of what it would apply to.
        has: what the run has of it, the most important first.
    """
    return ChangeError(fact("nothing_matches", what=fact(what), has=has))


def names_by_time(graph: StepGraph, among: Mask) -> list[str]:
    """Return the names of some parts, those with the most time first."""
    rows = np.flatnonzero(among & (graph.parts.name >= 0))
    total = np.bincount(graph.parts.name[rows], weights=graph.parts.ns[rows], minlength=len(graph.names))
    order = np.argsort(-total, kind="stable")
    return [graph.names[place] for place in order[total[order] > 0].tolist()]


def rank_of_parts(graph: StepGraph) -> Ints:
    """Return the rank of each part; -1 for none."""
    return np.asarray(graph.nodes.rank[graph.parts.node], np.int64)


def per_rank_and_step(graph: StepGraph) -> int:
    """Return the number of steps of all ranks, at least 1: what counts per step and rank are of."""
    return max(1, len(graph.ranks) * len(graph.steps))


def time_per_step(state: Altered, parts: Mask) -> Facts:
    """Return how long some parts take per step: the mean over steps, and of the rank with the most of several."""
    graph = state.graph
    _, row = np.unique(rank_of_parts(graph)[parts], return_inverse=True)  # a trace may name any number as its rank
    total = np.bincount(row.reshape(-1), weights=state.part_ns[parts]) / max(1, len(graph.steps))
    time = fact("per_step", ns=round(float(total.max(initial=0.0))))
    return (time, fact("on_most")) if len(graph.ranks) > 1 else (time,)
