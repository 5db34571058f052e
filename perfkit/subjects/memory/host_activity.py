"""What the host did when a block was allocated: operators, collectives, loading of data, passes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit.engine.idle.attribution import spans_of_rows
from perfkit.engine.kinds.classify import Names, data_loading_rows, rows_by_key
from perfkit.engine.steps.passes import Passes, find_passes
from perfkit.engine.steps.windows import Steps
from perfkit.phases import annotation
from perfkit.records.per_rank.sharding import PASS_PHASES, PassPhase
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, Union

_SHARDING: Final = "FSDP::"
"""Begins the annotations of FSDP2, in which only it allocates: it gathers and reduces parameters there."""
_TO_DEVICE: Final = annotation("to_device")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """Spans of the host, of all threads or by thread."""

    steps: Steps
    passes: Passes
    input: Union
    operators: dict[int, Union]
    communication: dict[int, Union]

    def begins_of(self, phase: PassPhase) -> Ints:
        """Return when the passes of a phase begin, in order."""
        return np.asarray(self.passes.begin[self.passes.phase == PASS_PHASES.index(phase)])


def find_host_activity(events: Events, names: Names, steps: Steps) -> HostActivity:
    """Return what of the host's events shows what memory is for."""
    annotations, operators = events.rows(EventKind.ANNOTATION), events.rows(EventKind.OPERATOR)
    loading = np.concatenate((data_loading_rows(events, names), _named(events, annotations, _TO_DEVICE.__eq__)))
    communicating = np.concatenate(
        (
            operators[names.communication_operator[events.name[operators]]],
            annotations[names.backend_annotation[events.name[annotations]]],
            _named(events, annotations, lambda name: name.startswith(_SHARDING)),
        )
    )
    return HostActivity(
        steps=steps,
        passes=find_passes(events, steps),
        input=spans_of_rows(events, loading),
        operators=_by_thread(events, operators),
        communication=_by_thread(events, communicating),
    )


def _named(events: Events, rows: Ints, matches: Callable[[str], bool]) -> Ints:
    chosen = np.zeros(max(1, len(events.names)), np.bool_)
    used = events.names_of(rows)
    chosen[used] = [matches(events.names[name]) for name in used.tolist()]
    return rows[chosen[events.name[rows]]]


def _by_thread(events: Events, rows: Ints) -> dict[int, Union]:
    return {thread: spans_of_rows(events, own) for thread, own in rows_by_key(events.thread, rows).items()}
