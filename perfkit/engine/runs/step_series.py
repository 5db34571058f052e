"""Tell apart the steps of a rank's traces whose numbers start again, as with a new profiler for each epoch.

A step is identified by its number and the series that it is in, as one integer (`perfkit.base.step_numbers`). Series of
ranks that have as many are matched in order of time; clocks decide only of a rank that lacks traces.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfkit.base.step_numbers import RESTART
from perfkit.engine.communication.collective_calls import COLUMNS
from perfkit.engine.pipelines.actions import ACTION_COLUMNS, STEP_COLUMNS
from perfkit.engine.trace_summary import TraceSummary

_NUMBERS: Final = ("step", "max_step")
"""Fields of records that are the number of a step."""


def steps_apart(ranks: Mapping[int, Sequence[TraceSummary]]) -> dict[int, list[TraceSummary]]:
    """Return the traces of each rank, in order of time, with steps of which no two have one number."""
    restarts = {rank: _restarts(traces) for rank, traces in ranks.items()}
    most = max(restarts, key=lambda rank: restarts[rank][-1], default=None)
    if most is None or not restarts[most][-1]:
        return {rank: list(traces) for rank, traces in ranks.items()}
    known = _begins(restarts[most], ranks[most])
    return {
        rank: [
            _later(trace, restart * RESTART)
            for trace, restart in zip(traces, _placed(restarts[rank], traces, known), strict=True)
        ]
        for rank, traces in ranks.items()
    }


def _restarts(traces: Sequence[TraceSummary]) -> list[int]:
    """Return for each trace how often the numbers had started again: it begins with one no larger than the last."""
    before, last, found = 0, -1, list[int]()
    for trace in traces:
        numbers = [step.step for step in trace.steps if step.step is not None]
        if numbers and numbers[0] + before * RESTART <= last:
            before = last // RESTART + 1
        last = numbers[-1] + before * RESTART if numbers else last
        found.append(before)
    return found


def _placed(restarts: list[int], traces: Sequence[TraceSummary], known: Mapping[int, int]) -> list[int]:
    """Return the restarts of a rank as those of the rank with most, `known` by when they began.

    One that lacks some has begun its own when that rank did, as far as their clocks tell.
    """
    own = _begins(restarts, traces)
    placed = (
        dict(zip(own, known, strict=True))
        if len(own) == len(known)
        else {one: min(known, key=lambda other: abs(known[other] - begin_ns)) for one, begin_ns in own.items()}
    )
    return [placed[one] for one in restarts] if len(set(placed.values())) == len(own) else restarts


def _begins(restarts: list[int], traces: Sequence[TraceSummary]) -> dict[int, int]:
    """Return when the first trace after each number of restarts begins (ns)."""
    begins: dict[int, int] = {}
    for restart, trace in zip(restarts, traces, strict=True):
        begins.setdefault(restart, trace.steps[0].start_ns)
    return begins


def _later(trace: TraceSummary, by: int) -> TraceSummary:
    """Return a trace with the numbers of its steps larger by so much."""
    if not by:
        return trace
    calls, pipeline, graph = trace.calls, trace.pipeline, trace.graph
    return replace(
        trace,
        **{name: _moved(getattr(trace, name), by) for name in ("steps", "operators", "collectives", "memory", "work")},
        calls=replace(calls, columns=_column_moved(calls.columns, COLUMNS, by)),
        pipeline=pipeline
        and replace(
            pipeline,
            actions=_column_moved(pipeline.actions, ACTION_COLUMNS, by),
            steps=_column_moved(pipeline.steps, STEP_COLUMNS, by),
        ),
        graph=graph and replace(graph, steps=[None if step is None else step + by for step in graph.steps]),
    )


def _moved(value: Any, by: int) -> Any:
    """Return records with the numbers of steps in them larger by so much."""
    if isinstance(value, list):
        return [_moved(one, by) for one in value]
    if not isinstance(value, Struct):
        return value
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    changed = {name: one + by for name in _NUMBERS if (one := fields.pop(name, None)) is not None}
    changed |= {name: _moved(one, by) for name, one in fields.items() if isinstance(one, list | Struct)}
    return replace(value, **changed) if changed else value


def _column_moved(table: bytearray, columns: Sequence[str], by: int) -> bytearray:
    """Return a table of int64 columns with the column `step` larger by so much, except where it is -1."""
    rows = np.frombuffer(table, np.int64).reshape(len(columns), -1).copy()
    step = rows[columns.index("step")]
    step[step >= 0] += by
    return bytearray(rows)
