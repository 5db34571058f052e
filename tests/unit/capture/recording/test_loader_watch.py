"""Loaders that are timed return what they return otherwise."""

import pickle
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from perfkit.capture.recording.loader_fetches import MOST, FetchFile, TimedWorker, read_fetches, time_fetches
from perfkit.capture.recording.loader_watch import watch_loaders


class Numbers(Dataset[int]):
    slow = 13

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == self.slow:
            time.sleep(0.05)
        return index


class Whole(Numbers):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(40))


def loaded(dataset: Any, **options: Any) -> list[list[int]]:
    torch.manual_seed(3)
    return [batch.tolist() for batch in DataLoader(dataset, 8, **options)]


@pytest.mark.parametrize("dataset", [Numbers(), Whole(), Stream()])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_and_their_order_stay_the_same(dataset: Any, workers: int) -> None:
    shuffle = {} if isinstance(dataset, Stream) else {"shuffle": True}
    watch = watch_loaders()
    begin_ns = time.time_ns()
    batches = loaded(dataset, num_workers=workers, **shuffle)
    # A stream is read by each worker.
    copies = workers if isinstance(dataset, Stream) and workers else 1
    assert sorted(number for batch in batches for number in batch) == sorted([*range(40)] * copies)
    fetches = watch.since(begin_ns)
    assert len(fetches) == 5 * copies
    assert {one.worker for one in fetches} == (set(range(workers)) or {-1})
    if type(dataset) is Numbers:
        assert batches == loaded(dataset, num_workers=0, shuffle=True)
        slowest = max(fetches, key=lambda one: one.slowest_ns)
        assert slowest.slowest == Numbers.slow
        assert 50e6 <= slowest.slowest_ns <= slowest.get_ns
        assert slowest.cpu_ns < slowest.get_ns / 2


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

    log: deque[Any] = deque()
    with pytest.raises(LookupError, match="sample 3"):
        time_fetches(Fetcher(), 0, log).fetch([3])
    assert not log
