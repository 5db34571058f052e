"""Samples divided among files, kept in memory, or read by one rank for others: the batches stay the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from perfkit.cli.recording.run_options import parse_job
from perfkit.errors import UsageError
from perfkit_workloads.base import Workload
from perfkit_workloads.data import SOURCES, DataOptions
from perfkit_workloads.data.divided import first_samples, prepare_files
from perfkit_workloads.data.opening import Opened, Place, Samples, open_input
from perfkit_workloads.data.sampling import FileSampler, InTurns, make_sampler
from tests.unit.workloads.conftest import make, make_source

FILES = [name for name in SOURCES.builtin if name != "memory"]
SAMPLES, BATCH = 203, 5


def workload() -> Workload[Any]:
    return make("gpt", samples=SAMPLES, block=12)


def opened(folder: Path, place: Place, **values: object) -> Opened:
    source, options = make_source(**values, data_dir=str(folder))
    made, spec = workload(), workload().data_spec(0)
    return open_input(Samples(source, made, spec, prepare_files(source, made, spec, options), options), place)


def expected(place: Place, options: DataOptions) -> Iterator[Tensor]:
    """Return the batches by looking up the sampler's numbers in the generated samples."""
    tokens = torch.from_numpy(workload().generate(workload().data_spec(0), 0, SAMPLES)["tokens"])
    sampler = make_sampler(options, SAMPLES, **place._asdict())
    order = list(sampler)
    return (tokens[order[start : start + BATCH]] for start in range(0, len(order) - BATCH + 1, BATCH))


@pytest.mark.parametrize("read", ["per-sample", "batched"])
@pytest.mark.parametrize("options", [{"files": 4}, {"preload": True}, {"files": 4, "preload": True}])
@pytest.mark.parametrize("source", FILES)
def test_every_source_gives_the_same_batches(source: str, options: dict[str, Any], read: str, tmp_path: Path) -> None:
    for replica in (0, 1):
        place = Place(2, replica, 3, BATCH)
        loader = opened(tmp_path, place, source=source, read=read, **options).loader
        found = [batch["tokens"].clone() for batch in loader]
        wanted = list(expected(place, DataOptions(source=source, **options)))
        assert len(found) == len(wanted) == len(loader) > 15
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_workers_give_the_batches_of_their_files(tmp_path: Path) -> None:
    values: dict[str, Any] = {"files": 4, "num_workers": 2, "worker_start": "fork"}
    place = Place(1, 0, 3, BATCH)
    loader = opened(tmp_path, place, source="hdf5", **values).loader
    found = [batch["tokens"].clone() for batch in loader]
    assert all(torch.equal(a, b) for a, b in zip(found, expected(place, DataOptions(**values)), strict=True))


def test_a_rank_and_its_workers_read_their_own_files_and_no_sample_twice() -> None:
    bounds = first_samples(SAMPLES, 8)
    file_of = {sample: file for file in range(8) for sample in range(bounds[file], bounds[file + 1])}
    counts = set()
    for replica in (0, 1):
        options = DataOptions(files=8, num_workers=2)
        sampler = make_sampler(options, SAMPLES, replicas=2, replica=replica, seed=0, batch_size=BATCH)
        first = list(sampler)
        sampler.set_epoch(1)
        second = list(sampler)
        assert first != second
        for order in (first, second):
            assert len(set(order)) == len(order) == len(sampler)
            for batch in range(len(order) // BATCH):
                files = {file_of[sample] for sample in order[batch * BATCH : (batch + 1) * BATCH]}
                assert files <= {replica + 4 * (batch % 2) // 2, replica + 4 + 4 * (batch % 2) // 2}
        counts.add(len(first))
    assert len(counts) == 1, "every rank has as many batches"


def test_files_shared_by_workers_are_still_read_by_one_rank_only() -> None:
    options = DataOptions(files=6, num_workers=2)
    sampler = make_sampler(options, 60, replicas=2, replica=1, seed=0, batch_size=5)
    assert {sample // 10 for sample in sampler} == {1, 3, 5}


def test_samplers_in_turns_give_each_rank_its_own_batches() -> None:
    samplers: list[Any] = [FileSampler([0, 10, 20], [[number]], 0, 3) for number in (0, 1)]
    together = InTurns(samplers, 3)
    order = list(together)
    assert len(together) == len(order) == 18
    assert [order[start : start + 3] for start in range(0, 18, 6)] == [
        list(samplers[0])[start : start + 3] for start in range(0, 9, 3)
    ]


def test_files_are_kept_in_memory(tmp_path: Path) -> None:
    """What was preloaded is still there when the files are gone."""
    place = Place(1, 0, 0, BATCH)
    loader = opened(tmp_path, place, source="safetensors", preload=True, files=2).loader
    for path in tmp_path.iterdir():
        path.unlink()
    assert len([batch["tokens"].shape for batch in loader]) == SAMPLES // BATCH


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--files", "4"], "files has no effect: source memory"),
        (["--preload"], "preload has no effect: source memory"),
        (["--readers", "1", "--pin-memory"], "pin_memory has no effect on batches"),
    ],
)
def test_options_without_effect_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_job(["gpt", *arguments])


@pytest.mark.parametrize(
    ("arguments", "ranks", "message"),
    [
        (["--source", "hdf5", "--files", "3"], 2, "files 3 cannot be divided among 2 ranks"),
        (["--source", "hdf5", "--files", "8", "--samples", "4"], 2, "files 8 are more than the 4 samples"),
        (["--readers", "1"], 1, "readers 1 of 1 rank:"),
        (["--readers", "2"], 2, "readers 2 of 2 ranks"),
        (["--readers", "3"], 4, "readers 3 of 4 ranks"),
        (["--readers", "1", "--mesh", "dp=2,tp=2"], 4, "readers needs ranks that all train on their own samples"),
    ],
)
def test_options_that_do_not_fit_the_ranks_are_refused(arguments: list[str], ranks: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_job(["gpt", *arguments]).check_world(ranks)
    parse_job(["gpt", "--source", "hdf5", "--files", "4", "--readers", "1"]).check_world(2)


def test_too_few_samples_for_a_batch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch_size 30 exceeds the 25 samples per rank"):
        opened(tmp_path, Place(8, 0, 0, 30), source="bin", files=8)
