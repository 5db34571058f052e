"""Loaders that are timed return what they return otherwise."""

import errno
import gc
import hashlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, dataloader

from perfkit.record.recording.loader_fetches import (
    MOST,
    FetchFile,
    OwnFetches,
    TimedWorker,
    read_fetches,
    time_fetches,
)
from perfkit.record.recording.loader_watch import prepared_steps, watch_loaders


class Clock:
    """Time that only samples take: on a busy machine any of them may last longer than the slow one."""

    now_ns = 0

    @classmethod
    def sleep(cls, seconds: float) -> None:
        cls.now_ns += round(seconds * 1e9)


@pytest.fixture
def _clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    timed = SimpleNamespace(**vars(time) | dict.fromkeys(("perf_counter_ns", "time_ns"), lambda: Clock.now_ns))
    monkeypatch.setattr("perfkit.record.recording.loader_fetches.time", timed)
    monkeypatch.setattr(Clock, "now_ns", 1)
    watch_loaders().discard()  # which forgets the fetches of other times
    yield
    watch_loaders().discard()


class Numbers(Dataset[int]):
    slow = 13

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        Clock.sleep(5 if index == self.slow else 0.0001)
        return index


class Whole(Numbers):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(40))


def fetcher_of(dataset: Any) -> Any:
    kind: Any = dataloader._DatasetKind
    return kind.create_fetcher(int(isinstance(dataset, Stream)), dataset, True, list, False)


def loaded(dataset: Any, **options: Any) -> list[list[int]]:
    torch.manual_seed(3)
    return [batch.tolist() for batch in DataLoader(dataset, 8, **options)]


@pytest.mark.usefixtures("_clock")
@pytest.mark.parametrize("dataset", [Numbers(), Whole(), Stream()])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_and_their_order_stay_the_same(dataset: Any, workers: int) -> None:
    shuffle = {} if isinstance(dataset, Stream) else {"shuffle": True}
    watch = watch_loaders()
    batches = loaded(dataset, num_workers=workers, **shuffle)
    # A stream is read by each worker.
    copies = workers if isinstance(dataset, Stream) and workers else 1
    assert sorted(number for batch in batches for number in batch) == sorted([*range(40)] * copies)
    fetches = watch.since(0)
    assert len(fetches) == 5 * copies
    assert {one.worker for one in fetches} == (set(range(workers)) or {-1})
    if type(dataset) is Numbers:
        assert batches == loaded(dataset, num_workers=0, shuffle=True)
        slowest = max(fetches, key=lambda one: one.slowest_ns)
        assert slowest.slowest == Numbers.slow
        assert 5e9 <= slowest.slowest_ns <= slowest.get_ns
        assert slowest.cpu_ns < slowest.get_ns / 2


def test_the_end_of_each_pass_is_noted() -> None:
    watch, begin_ns = watch_loaders(), time.time_ns()
    loader = DataLoader(Numbers(), 2)
    assert [len(list(loader)) for _ in range(2)] == [20, 20]
    ends = watch.without_batch_since(begin_ns)
    assert len(ends) == 2
    assert all(begin_ns <= begin <= end for begin, end in ends)
    assert ends[0][1] <= ends[1][0]
    assert watch.without_batch_since(time.time_ns()) == []


def test_the_programs_own_function_runs_in_each_worker(tmp_path: Path) -> None:
    loader = DataLoader(
        Numbers(), 8, num_workers=1, worker_init_fn=lambda worker: tmp_path.joinpath(str(worker)).touch()
    )
    own = loader.worker_init_fn
    watch_loaders()
    assert len(list(loader)) == 5
    assert (tmp_path / "0").exists()
    assert loader.worker_init_fn is own


def test_a_spawned_worker_can_be_sent_what_times_it(tmp_path: Path) -> None:
    assert isinstance(pickle.loads(pickle.dumps(TimedWorker(None, str(tmp_path)))), TimedWorker)  # noqa: S301


def test_a_file_keeps_the_newest_fetches(tmp_path: Path) -> None:
    log = FetchFile(str(tmp_path), 1)
    for number in range(MOST + 3):
        log.append((1, number, 1, 1, 1, 8, -1, 0))
    (path,) = tmp_path.iterdir()
    assert {one[1] for one in read_fetches(path)} == set(range(3, MOST + 3))
    path.write_bytes(b"short")
    assert read_fetches(path) == []
    assert read_fetches(tmp_path / "gone") == []


def test_an_error_of_a_sample_reaches_the_program() -> None:
    class Fetcher:
        dataset = collate_fn = None

        def fetch(self, _index: Any) -> Any:
            raise LookupError("sample 3")

    log = OwnFetches()
    with pytest.raises(LookupError, match="sample 3"):
        time_fetches(Fetcher(), 0, log).fetch([3])
    assert not log


def test_a_workers_file_has_its_room_at_once(tmp_path: Path) -> None:
    FetchFile(str(tmp_path), 1)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_blocks * 512 >= path.stat().st_size > 64 * MOST


def test_without_room_a_worker_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    create, called = dataloader._DatasetKind.create_fetcher, list[int]()
    TimedWorker(called.append, str(tmp_path))(3)
    assert called == [3]
    assert dataloader._DatasetKind.create_fetcher is create
    assert list(tmp_path.iterdir()) == []


def test_files_of_ended_workers_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.record.recording.loader_watch._MOST_FILES", 3)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for number in range(5):
        path = tmp_path / f"{ended.pid}.{number}.fetches"
        path.touch()
        os.utime(path, (number, number))
    running = tmp_path / f"{os.getpid()}.9.fetches"
    running.touch()
    os.utime(running, (0, 0))  # a worker that a long-lived loader keeps
    watch = watch_loaders()
    monkeypatch.setattr(watch, "_folder", str(tmp_path))
    watch._worker_folder()
    assert {path.name.split(".")[1] for path in tmp_path.iterdir()} == {"2", "3", "4", "9"}


@pytest.mark.parametrize("workers", [0, 1])
def test_once_stopped_nothing_is_timed(workers: int) -> None:
    watch = watch_loaders()
    begin_ns = time.time_ns()
    batches = iter(DataLoader(Numbers(), 4, num_workers=workers, prefetch_factor=2 if workers else None))
    assert next(batches).tolist() == [0, 1, 2, 3]
    own, folder = watch._own, watch._folder
    assert own is not None
    timed = len(own)
    watch.discard()
    assert [batch[0].item() for batch in batches] == [*range(4, 40, 4)]
    assert len(own) == timed
    assert folder is None or not Path(folder).exists()
    assert loaded(Numbers(), num_workers=workers)[4] == [*range(32, 40)]
    assert (watch._own, watch._folder, watch.since(begin_ns)) == (None, None, [])
    watch_loaders()
    assert len(loaded(Numbers(), num_workers=workers)) == len(watch.since(begin_ns)) == 5


def test_a_worker_is_timed_no_more_once_its_file_is_gone(tmp_path: Path) -> None:
    log = FetchFile(str(tmp_path), 0)
    fetcher = fetcher_of(Numbers())
    fetch, collate = fetcher.fetch, fetcher.collate_fn
    time_fetches(fetcher, 0, log)
    assert (fetcher.fetch([1, 2]), log._count) == ([1, 2], 1)
    next(tmp_path.iterdir()).unlink()
    assert (fetcher.fetch([3]), log._count) == ([3], 1)
    assert (fetcher.fetch, fetcher.collate_fn, type(fetcher.dataset)) == (fetch, collate, Numbers)


def test_samples_of_a_stream_have_no_number() -> None:
    log = OwnFetches()
    fetcher = fetcher_of(Stream())
    assert time_fetches(fetcher, 0, log).fetch([None] * 8) == [*range(8)]
    ((*_, samples, slowest, slowest_ns),) = log
    assert (samples, slowest) == (8, -1)
    assert slowest_ns > 0


def test_a_fetcher_of_another_kind_is_left_alone() -> None:
    class Own:
        def fetch(self, index: Any) -> Any:
            return index

    own = Own()
    assert time_fetches(own, 0, OwnFetches()).fetch([3]) == [3]
    assert vars(own) == {}
    assert time_fetches(None, 0, OwnFetches()) is None


@pytest.mark.usefixtures("_clock")
def test_samples_that_take_hardly_any_time_are_only_counted() -> None:
    class Cheap(Numbers):
        pause_s = 0.002

        def __getitem__(self, index: int) -> int:
            Clock.sleep(self.pause_s)
            return index

    log, dataset = OwnFetches(), Cheap()
    fetch = time_fetches(fetcher_of(dataset), 0, log).fetch
    fetch([*range(8)])
    dataset.pause_s = 1e-6  # which would be noted if it were timed
    for _ in range(20):
        fetch([*range(8)])
    assert {one[5] for one in log} == {8}
    assert log[0][7] > 1_000_000
    assert [one[6:] for one in log].count((-1, 0)) == 19  # the first of them is timed, as the batch before took long
    dataset.pause_s = 0.002
    fetch([*range(8)])
    fetch([*range(8)])
    assert log[-1][7] > 1_000_000


class DecodedElsewhere(Dataset[int]):
    """Samples that another thread computes while the worker's own waits, as decoders with threads of their own do."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        thread = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"sample", b"salt", 200_000))
        begin = time.process_time()
        thread.start()
        thread.join()
        self.computed_s = time.process_time() - begin
        return index


@pytest.mark.parametrize("worker", [-1, 0])
def test_what_other_threads_of_a_worker_compute_is_no_waiting_for_storage(worker: int) -> None:
    dataset, fetches = DecodedElsewhere(), OwnFetches()
    time_fetches(fetcher_of(dataset), worker, fetches).fetch([1])
    ((_, _, get_ns, cpu_ns, *_),) = fetches
    assert cpu_ns <= get_ns
    assert (cpu_ns > 1e9 * dataset.computed_s / 2) == (worker >= 0)


def take(batches: Iterator[Any], count: int) -> None:
    """Take the batches of a step."""
    for _ in range(count):
        next(batches)
    watch_loaders().end_step(0, "plain", None)


def test_batches_that_workers_prepare_are_those_of_loaders_in_use() -> None:
    watch_loaders()
    before = prepared_steps()
    iterator = iter(DataLoader(Numbers(), batch_size=4, num_workers=2, prefetch_factor=before + 3))
    take(iterator, 1)
    assert prepared_steps() == 2 * (before + 3)
    del iterator
    assert prepared_steps() == before


def test_steps_of_several_batches_use_up_what_workers_have_prepared_sooner() -> None:
    gc.collect()  # loaders of other tests
    watch_loaders()
    loader = DataLoader(Numbers(), batch_size=1, num_workers=2, prefetch_factor=3, persistent_workers=True)
    first = iter(loader)
    for batches, steps in ((1, 6), (4, 2), (4, 2), (6, 1)):
        take(first, batches)
        assert prepared_steps() == steps
    watch_loaders().end_step(4, "plain", None)  # without a batch
    assert prepared_steps() == 1
    take(iter(loader), 5)  # the same workers in the next epoch
    assert prepared_steps() == 2
    del first
    second = iter(DataLoader(Numbers(), batch_size=1, num_workers=2, prefetch_factor=4))
    assert prepared_steps() == 2  # as far as is known
    take(second, 2)
    assert prepared_steps() == 4
