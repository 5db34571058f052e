"""What an effect works with and returns, and the choice of what it applies to, by name.

A name that nothing has is an error that lists what the run has.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.formatting import duration, escape_unprintable
from perfkit.engine.idle.host_names import call_cause
from perfkit.engine.step_graph.graph import HOST, StepGraph
from perfkit.engine.whatif.altered import Altered, Floats, Mask
from perfkit.errors import UsageError
from perfkit.records.run import RunReport
from perfkit.trace.intervals import Ints


class Effect(NamedTuple):
    """A graph after a change."""

    state: Altered
    applies_to: str
    """What of the run the change applies to."""
    assumptions: list[str]


class Subject(NamedTuple):
    """A graph that a change is applied to, and what else is known of its run."""

    state: Altered
    run: RunReport
    text: str
    """The change as given, for messages."""
    healthy: frozenset[int] = frozenset()
    """Ranks that the changes together make healthy: they are no measure for each other."""


_LISTED: Final = 8
_LONGEST: Final = 60
"""Characters of a name that a message shows."""
_LEAST: Final = 12
_PUNCTUATION: Final = "<(, "
"""Where the name of a kernel may be cut."""


def matches(pattern: str, names: Iterable[str]) -> Mask:
    """Return which names equal a pattern, or match it as a glob."""
    return np.array([name == pattern or fnmatchcase(name, pattern) for name in names], np.bool_)


def parts_named(graph: StepGraph, pattern: str, among: Mask) -> Mask:
    """Return which of the parts in `among` have a name that matches."""
    named = np.append(matches(pattern, graph.names), False)  # -1 is no name
    return np.asarray(among & named[graph.parts.name])


def calls_of_cause(graph: StepGraph, pattern: str) -> Mask:
    """Return the parts that are runtime calls which allocate or compile, by this cause or by name.

    In the graph, idle time is only what lies between operators and calls.
    """
    chosen = [
        cause is not None and bool(matches(pattern, (cause, name)).any())
        for name, cause in ((name, call_cause(name)) for name in graph.names)
    ]
    return np.asarray((graph.parts.kind == HOST) & np.array([*chosen, False])[graph.parts.name])


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


def nothing_matches(change: str, what: str, has: Sequence[str]) -> UsageError:
    """Return the error of a change that nothing in the run matches.

    Args:
        change: what was asked for.
        what: what it would apply to, such as `operator or kernel`.
        has: what the run has of it, the most important first.
    """
    listed = ", ".join(_short(name) for name in has[:_LISTED])
    more = f" and {len(has) - _LISTED} more" if len(has) > _LISTED else ""
    known = f"the run has {listed}{more}" if has else "the run has none"
    return UsageError(f"change {_short(change)}: no {what} matches; {known}")


def names_by_time(graph: StepGraph, among: Mask) -> list[str]:
    """Return the names of some parts, those with the most time first."""
    rows = np.flatnonzero(among & (graph.parts.name >= 0))
    total = np.bincount(graph.parts.name[rows], weights=graph.parts.ns[rows], minlength=len(graph.names))
    order = np.argsort(-total, kind="stable")
    return [graph.names[place] for place in order[total[order] > 0].tolist()]


def rank_of_parts(graph: StepGraph) -> Ints:
    """Return the rank of each part; -1 for none."""
    return np.asarray(graph.nodes.rank[graph.parts.node], np.int64)


def time_per_step(graph: StepGraph, part_ns: Floats, parts: Mask) -> str:
    """Return how long some parts take per step: the mean over steps, and of the rank with the most of several."""
    _, row = np.unique(rank_of_parts(graph)[parts], return_inverse=True)  # a trace may name any number as its rank
    total = np.bincount(row.reshape(-1), weights=part_ns[parts]) / max(1, len(graph.steps))
    most = float(total.max()) if len(total) else 0.0
    several = len(graph.ranks) > 1
    return f"{duration(round(most))} per step" + (" on the rank with the most" if several else "")


def _short(text: str) -> str:
    escaped = escape_unprintable(text)
    return escaped if len(escaped) <= _LONGEST else escaped[: _LONGEST - 1] + "…"
