"""Notes a rank's checkpoints, evaluations and logging: they are part of no step (metrics.md section 23)."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch.distributed as dist
from msgspec.structs import replace

from perfkit.engine.hangs.places import program_frame
from perfkit.record.hangs.rank_state import frames_of
from perfkit.record.step_listener import PauseState
from perfkit.records.per_run.pauses import MOST_CALLER, EarlierPauses, PausePhase, RecordedPause

_MOST: Final = 10_000
"""Pauses that are kept, the last ones: a run may have millions of steps. Those before are added up."""


class OpenPause:
    """A pause that has begun; what is written in it is added while it lasts."""

    def __init__(self) -> None:
        self.bytes: int | None = None
        self.asynchronous = False
        self.caller: str | None = None
        """As in `RecordedPause`."""

    def wrote(self, size: int) -> None:
        self.bytes = (self.bytes or 0) + size

    def called_in(self, frame: FrameType) -> None:
        """Note the line of the program that led to a frame of perfkit's own; the first such line counts."""
        frames = frames_of(frame)
        found = program_frame(frames)
        if self.caller is None and found is not None and found is not frames[0]:
            self.caller = f"{os.path.basename(found.file)}:{found.line} {found.function}"[:MOST_CALLER]


class PauseLog:
    """The pauses of one rank."""

    def __init__(self, state: PauseState | None = None) -> None:
        self.state = state or PauseState()
        self._last: list[RecordedPause] = []
        self._earlier: dict[PausePhase, EarlierPauses] = {}
        self._earlier_until_ns = 0
        """When the last of those ended."""
        self._open: OpenPause | None = None

    @property
    def total_ns(self) -> int:
        return self.state.total_ns

    @property
    def in_progress(self) -> bool:
        return self._open is not None

    @contextmanager
    def pause(self, phase: PausePhase, step: int) -> Iterator[OpenPause]:
        """Note a pause; one within another is part of it."""
        if self._open is not None:
            yield self._open
            return
        self._open, begin_ns = OpenPause(), time.time_ns()
        self.state.in_progress = True
        begin = time.perf_counter_ns()
        try:
            yield self._open
        finally:
            ended, self._open = self._open, None
            self.state.in_progress = False
            self.add(
                RecordedPause(
                    phase=phase,
                    step=step,
                    begin_ns=begin_ns,
                    end_ns=begin_ns + time.perf_counter_ns() - begin,
                    bytes=ended.bytes,
                    asynchronous=ended.asynchronous,
                    caller=ended.caller,
                )
            )

    def add(self, pause: RecordedPause) -> None:
        """Note a pause that is over.

        Of one in which others were noted, the parts around these are noted, if they last at least a tenth of it: a
        script may switch its model to evaluation only to write it.
        """
        inside = list(takewhile(lambda one: one.begin_ns >= pause.begin_ns, reversed(self._last)))[::-1]
        # Of one with more inside than are kept, only what follows those that are added up: they are counted already.
        begin_ns = max(pause.begin_ns, self._earlier_until_ns) if self._earlier else pause.begin_ns
        edges = [begin_ns, *(edge for one in inside for edge in (one.begin_ns, one.end_ns)), pause.end_ns]
        around = [
            replace(pause, begin_ns=begin, end_ns=end) for begin, end in zip(edges[::2], edges[1::2], strict=True)
        ]
        parts = [part for part in around if not inside or _length(part) * 10 >= _length(pause)]
        self.state.total_ns += sum(map(_length, parts))
        self._last[len(self._last) - len(inside) :] = sorted([*inside, *parts], key=lambda one: one.begin_ns)
        if len(self._last) > _MOST:
            self._add_up(self._last[:-_MOST])
            self._earlier_until_ns = self._last[-_MOST - 1].end_ns
            del self._last[:-_MOST]

    def drop_evaluations(self) -> None:
        """Forget the evaluations so far, which were part of steps; the times of steps that have ended stay."""
        self._last = [one for one in self._last if one.phase != "evaluation"]
        self._earlier.pop("evaluation", None)

    def since(self, begin_ns: int) -> list[RecordedPause]:
        """Return the pauses that ended after an instant, in order; the last ones if there are very many."""
        return [one for one in self._last if one.end_ns > begin_ns]

    def all(self) -> list[RecordedPause]:
        return list(self._last)

    def earlier(self) -> list[EarlierPauses]:
        """Return the sums of those before the last ones, by phase."""
        return list(self._earlier.values())

    def _add_up(self, pauses: Iterable[RecordedPause]) -> None:
        for one in pauses:
            before = self._earlier.get(one.phase) or EarlierPauses(phase=one.phase, count=0, total_ns=0, max_ns=0)
            known = [size for size in (before.bytes, one.bytes) if size is not None]
            self._earlier[one.phase] = EarlierPauses(
                phase=one.phase,
                count=before.count + 1,
                total_ns=before.total_ns + _length(one),
                max_ns=max(before.max_ns, _length(one)),
                bytes=sum(known) if known else None,
                asynchronous=before.asynchronous + one.asynchronous,
            )


def _length(pause: RecordedPause) -> int:
    return pause.end_ns - pause.begin_ns


def written_bytes(folder: Any) -> int | None:
    """Return the bytes that this rank has in a folder of torch.distributed.checkpoint; None if unknown."""
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    with suppress(OSError, TypeError):
        files = list(Path(folder).glob(f"__{rank}_*.distcp"))
        return sum(file.stat().st_size for file in files) if files else None
    return None
