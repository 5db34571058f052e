"""Lets torch's data loaders time how their batches are fetched, in this process and in workers."""

import atexit
import os
import shutil
import tempfile
from collections import deque
from functools import wraps
from pathlib import Path
from typing import Any, Final

from torch.utils.data import dataloader

from perfkit.capture.recording.loader_fetches import (
    MAIN_PROCESS,
    MOST,
    SUFFIX,
    Record,
    TimedWorker,
    read_fetches,
    time_fetches,
)
from perfkit.schema.per_rank.loading import RecordedFetch

_MOST_LISTED: Final = 20_000


class LoaderWatch:
    """The fetches of the data loaders of this process, from when it was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._folder: str | None = None
        self._own: deque[Record] = deque(maxlen=MOST)
        self._hook(dataloader._SingleProcessDataLoaderIter, self._after_single)
        self._hook_workers()

    def since(self, begin_ns: int) -> list[RecordedFetch]:
        """Return the fetches that ended after an instant, in order; the newest if there are very many."""
        records = list(self._own)
        if self._folder is not None:
            for path in sorted(Path(self._folder).glob(f"*{SUFFIX}")):
                records += read_fetches(path)
        late = sorted((one for one in records if one[1] + one[2] + one[4] > begin_ns), key=lambda one: one[1])
        return [RecordedFetch(*one) for one in late[-_MOST_LISTED:]]

    def _hook(self, kind: Any, after: Any) -> None:
        init = kind.__init__

        @wraps(init)
        def hooked(iterator: Any, loader: Any) -> None:
            init(iterator, loader)
            after(iterator)

        kind.__init__ = hooked

    def _after_single(self, iterator: Any) -> None:
        time_fetches(iterator._dataset_fetcher, MAIN_PROCESS, self._own)

    def _hook_workers(self) -> None:
        kind: Any = dataloader._MultiProcessingDataLoaderIter
        init = kind.__init__

        @wraps(init)
        def hooked(iterator: Any, loader: Any) -> None:
            own = loader.worker_init_fn
            if (folder := self._worker_folder()) is not None:
                loader.worker_init_fn = TimedWorker(own, folder)
            try:
                init(iterator, loader)
            finally:
                loader.worker_init_fn = own

        kind.__init__ = hooked

    def _worker_folder(self) -> str | None:
        if self._folder is None and os.getpid() == self._pid:
            try:
                self._folder = tempfile.mkdtemp(prefix="perfkit-loader-")
            except OSError:
                return None
            atexit.register(self._remove, self._folder)
        return self._folder

    def _remove(self, folder: str) -> None:
        if os.getpid() == self._pid:
            shutil.rmtree(folder, ignore_errors=True)


_watches: list[LoaderWatch] = []


def watch_loaders() -> LoaderWatch:
    """Return the watch of this process; the first call begins it."""
    if not _watches:
        _watches.append(LoaderWatch())
    return _watches[0]
