"""Lets torch's data loaders time how their batches are fetched, in this process and in workers."""

import atexit
import os
import shutil
import tempfile
import time
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torch.utils.data import dataloader

from perfkit.base.atomic_write import temporary_prefix
from perfkit.record.patching import Function, wrap_function
from perfkit.record.recording.loader_fetches import (
    MAIN_PROCESS,
    MOST,
    SUFFIX,
    OwnFetches,
    TimedWorker,
    read_fetches,
    time_fetches,
    worker_runs,
)
from perfkit.record.recording.worker_sampler import FLAG, read_samples
from perfkit.record.step_listener import Recorder, StepListener
from perfkit.records.manifest import StepKind
from perfkit.records.per_rank.loading import RecordedFetch
from perfkit.records.samples import RecordedSamples

if TYPE_CHECKING:
    from torch import Tensor

_MOST_LISTED: Final = 20_000
_MOST_FILES: Final = 256
"""Files of workers that have ended which are kept: loaders make new workers each epoch."""


class _Ahead:
    """An iterator whose workers prepare batches before they are asked for.

    Args:
        per_step: batches that a step took of the iterator before it.
    """

    def __init__(self, iterator: Any, per_step: int) -> None:
        self._iterator = weakref.ref(iterator)
        self._received = 0
        self.per_step = per_step
        """Batches that the last step which took any has taken."""

    def is_used(self) -> bool:
        return self._iterator() is not None

    def end_step(self) -> None:
        if (iterator := self._iterator()) is not None:
            # In the next epoch of workers that stay, it counts from 0.
            received, before = iterator._rcvd_idx, self._received
            self.per_step = received - (before if before <= received else 0) or self.per_step
            self._received = received

    def steps(self) -> int:
        """Return for how many steps its workers have batches."""
        iterator = self._iterator()
        batches = 0 if iterator is None else iterator._num_workers * (iterator._prefetch_factor or 0)
        return -(-batches // self.per_step)


class LoaderWatch(StepListener):
    """The fetches of the data loaders of this process, from when it was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._folder: str | None = None
        self._own: OwnFetches | None = OwnFetches()
        """None while nothing is timed."""
        self._ahead: list[_Ahead] = []
        self._samples = False
        self._without_batch: deque[tuple[int, int]] = deque(maxlen=MOST)
        wrap_function(dataloader._BaseDataLoaderIter, "__next__", self._around_next)
        wrap_function(dataloader._SingleProcessDataLoaderIter, "__init__", self._around_single)
        wrap_function(dataloader._MultiProcessingDataLoaderIter, "__init__", self._around_workers)
        atexit.register(self.discard)

    def resume(self) -> None:
        """Time the loaders that are iterated over from now on, if no others are timed."""
        if self._own is None:
            self._own = OwnFetches()

    def discard(self) -> None:
        """Time no more fetches, and forget those so far; workers notice at their next batch."""
        if os.getpid() != self._pid:
            return
        if self._own is not None:
            self._own.is_over = True
        self._own = None
        self._without_batch.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def end_step(self, _step: int, _kind: StepKind, _loss: "Tensor | float | None", /) -> None:
        for one in self._ahead:
            one.end_step()

    @property
    def prepared(self) -> int:
        """Most steps whose batches the workers of a loader in use prepare before they are asked for."""
        return max((one.steps() for one in self._ahead), default=0)

    def since(self, begin_ns: int) -> list[RecordedFetch]:
        """Return the fetches that ended after an instant, in order; the newest if there are very many."""
        records = list(self._own or ())
        for path in self._files():
            records += read_fetches(path)
        late = sorted((one for one in records if one[1] + one[2] + one[4] > begin_ns), key=lambda one: one[1])
        return [RecordedFetch(*one) for one in late[-_MOST_LISTED:]]

    def without_batch_since(self, begin_ns: int) -> list[tuple[int, int]]:
        """Return when loaders had no batch left, from the end of each pass on; the newest if there are very many."""
        return [one for one in list(self._without_batch) if one[1] > begin_ns]

    def sample_workers(self, wanted: bool) -> None:
        """Let worker processes sample what they do from their next batches on, or no more."""
        self._samples = wanted
        if self._folder is None:
            return
        flag = Path(self._folder, FLAG)
        with suppress(OSError):
            flag.touch() if wanted else flag.unlink(missing_ok=True)

    def samples_since(self, begin_ns: int) -> list[RecordedSamples]:
        """Return what worker processes have sampled since an instant."""
        return [] if self._folder is None else read_samples(Path(self._folder), begin_ns)

    def _around_next(self, following: Function) -> Function:
        def hooked(iterator: Any) -> Any:
            begin_ns = time.time_ns()
            try:
                return following(iterator)
            except StopIteration:
                if self._own is not None:
                    self._without_batch.append((begin_ns, time.time_ns()))
                raise

        return hooked

    def _around_single(self, init: Function) -> Function:
        def hooked(iterator: Any, loader: Any) -> None:
            init(iterator, loader)
            if self._own is not None:
                time_fetches(getattr(iterator, "_dataset_fetcher", None), MAIN_PROCESS, self._own)

        return hooked

    def _around_workers(self, init: Function) -> Function:
        def hooked(iterator: Any, loader: Any) -> None:
            own = loader.worker_init_fn
            if (folder := self._worker_folder()) is not None:
                loader.worker_init_fn = TimedWorker(own, folder)
            try:
                init(iterator, loader)
            finally:
                loader.worker_init_fn = own
            # A new list: another thread may be reading the one before.
            ahead = _Ahead(iterator, self._ahead[-1].per_step if self._ahead else 1)
            self._ahead = [*(one for one in self._ahead if one.is_used()), ahead]

        return hooked

    def _worker_folder(self) -> str | None:
        if self._own is None or os.getpid() != self._pid:
            return None
        if self._folder is None:
            with suppress(OSError):
                self._folder = tempfile.mkdtemp(prefix=temporary_prefix("perfkit-loader"))
            self.sample_workers(self._samples)
        self._files()  # to remove old ones
        return self._folder

    def _files(self) -> list[Path]:
        """Return the files of workers that run, and the newest of those that have ended; remove the others."""
        if self._folder is None:
            return []
        running: list[Path] = []
        ended: list[tuple[float, Path]] = []
        for path in Path(self._folder).glob(f"*{SUFFIX}"):
            if worker_runs(path):
                running.append(path)
            else:
                with suppress(OSError):
                    ended.append((path.stat().st_mtime, path))
        ended.sort(reverse=True)
        for _, path in ended[_MOST_FILES:]:
            path.unlink(missing_ok=True)
        return running + [path for _, path in ended[:_MOST_FILES]]


class SampledWorkers(Recorder):
    """Samples the worker processes of loaders in recorded steps; the samples are in the trace's header."""

    def __init__(self, loaders: LoaderWatch) -> None:
        self._loaders = loaders

    def start(self) -> None:
        self._loaders.sample_workers(True)

    def stop(self) -> None:
        self._loaders.sample_workers(False)


_watches: list[LoaderWatch] = []


def watch_loaders() -> LoaderWatch:
    """Return the watch of this process; the first call begins it, or one after it has stopped."""
    if not _watches:
        _watches.append(LoaderWatch())
    _watches[0].resume()
    return _watches[0]


def prepared_steps() -> int:
    """Return of how many steps the workers of a loader may have prepared the batches before they are asked for."""
    return max((watch.prepared for watch in _watches), default=0)


def stop_watching_loaders() -> None:
    for watch in _watches:
        watch.discard()
