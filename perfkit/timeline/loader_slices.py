"""Slices of how a rank's batches were fetched, for a track of each of its data loader's workers.

How long a batch's samples took, and how much of that the processor worked for them, is recorded; which sample was read
when is not. So the samples are one slice, named by what most of it was (metrics.md section 24).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.per_rank.loading.waits import MAIN_PROCESS, Fetches, fetch_columns, slow_samples
from perfkit.schema.per_rank.loading import RecordedFetch
from perfkit.timeline.collective_links import Spans
from perfkit.trace.intervals import Ints
from perfkit.util.formatting import duration, whole_percent

BATCH: Final = "batch"
COLLATING: Final = "collating"
_SLOW: Final = "samples: one slow sample"
_READING, _TRANSFORMING = "samples: reading", "samples: transforming"


def loader_track(worker: int) -> str:
    """Return the name of the track of a worker."""
    return "perfkit: data loading" if worker == MAIN_PROCESS else f"perfkit: loader worker {worker}"


def loader_slices(
    recorded: list[RecordedFetch], start_ns: Ints, end_ns: Ints
) -> dict[int, tuple[Spans, list[str | None]]]:
    """Return the slices of each worker by its number, with a note or None for each slice.

    Args:
        recorded: how batches were fetched.
        start_ns: starts of the windows to show, disjoint and in order; shape (w,).
        end_ns: their ends.
    """
    fetches = fetch_columns(recorded)
    kind = np.where(slow_samples(fetches), 2, np.where(2 * fetches.cpu_ns >= fetches.got - fetches.begin, 1, 0))
    shown = _overlaps(fetches, start_ns, end_ns)
    found = {}
    for worker in np.unique(fetches.worker[shown]).tolist():
        rows = np.flatnonzero(shown & (fetches.worker == worker))
        found[worker] = _of_worker(fetches, rows, kind[rows].tolist())
    return found


def _overlaps(fetches: Fetches, start_ns: Ints, end_ns: Ints) -> NDArray[np.bool_]:
    """Return which fetches overlap a window."""
    window = np.searchsorted(end_ns, fetches.begin, side="right")
    return np.append(start_ns, np.iinfo(np.int64).max)[window] < fetches.end


def _of_worker(fetches: Fetches, rows: Ints, kinds: list[int]) -> tuple[Spans, list[str | None]]:
    names = (_READING, _TRANSFORMING, _SLOW)
    spans = Spans(
        np.concatenate((fetches.begin[rows], fetches.begin[rows], fetches.got[rows])),
        np.concatenate((fetches.end[rows], fetches.got[rows], fetches.end[rows])),
        [BATCH] * len(rows) + [names[kind] for kind in kinds] + [COLLATING] * len(rows),
    )
    nothing: list[str | None] = [None] * len(rows)
    return spans, nothing + [_note(fetches, row) for row in rows.tolist()] + nothing


def _note(fetches: Fetches, row: int) -> str:
    """Return what is known of the samples of a batch."""
    get_ns, slowest_ns = int(fetches.got[row] - fetches.begin[row]), int(fetches.slowest_ns[row])
    parts = [f"processor {whole_percent(int(fetches.cpu_ns[row]) / max(get_ns, 1))} of the time"]
    if fetches.samples[row] > 1:  # one may be a whole batch
        parts.insert(0, f"{fetches.samples[row]} samples")
        if slowest_ns:
            index = f" (number {fetches.slowest[row]})" if fetches.slowest[row] >= 0 else ""
            parts.append(f"the slowest{index} took {duration(slowest_ns)}")
    return ", ".join(parts)
