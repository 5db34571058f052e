"""Options of `perfkit input`: what is measured, and what is refused before anything is."""

from pathlib import Path

import pytest

from perfkit.cli import main
from perfkit.errors import UsageError
from perfkit.tools.input.config import InputConfig, RandomTokens, describe_samples
from tests.unit.workloads.conftest import make_source


def test_every_source_is_measured_in_every_way() -> None:
    config = InputConfig(source="memory,hdf5", read="batched,per-sample", num_workers="0,2", files=2, preload=True)
    sources = {name: make_source(source=name)[0] for name in config.sources}
    found = config.plan_series(sources)
    assert len({(one.source, one.read, one.num_workers) for one in found}) == len(found) == 8
    assert {(one.source, one.files, one.preload) for one in found} == {("memory", 1, False), ("hdf5", 2, True)}
    assert [config.options_of(one).num_workers for one in found] == [one.num_workers for one in found]


def test_a_layout_is_part_of_what_is_measured() -> None:
    source, _ = make_source(source="hdf5", hdf5_chunk=4)
    (one,) = InputConfig(source="hdf5", read="batched").plan_series({"hdf5": source})
    assert one.layout == {"hdf5_chunk": 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--source", "memory,zarr"], "there is no 'zarr'"),
        (["--read", "all"], "there is no 'all'"),
        (["--num-workers", "0,-1"], "write numbers from 0 to 1,024"),
        (["--num-workers", "99999"], "write numbers from 0 to 1,024"),
        (["--prefetch", "4"], "prefetch has no effect without workers"),
        (["--sample-size", "tiny"], "--sample-size tiny"),
        (["--step", "20"], "--step: '20' is not a duration"),
        (["--samples", "16"], "--batch-size 32 exceeds the 16 samples per rank"),
        (["--source", "hdf5", "--files", "3", "-n", "2"], "files 3 cannot be divided among 2 ranks"),
        (["--readers", "1"], "readers 1 of 1 rank"),
        (["--source", "memory", "--preload"], "preload has no effect: memory has no files"),
        (["--source", "memory", "--hdf5-chunk", "4"], "hdf5_chunk is for source hdf5"),
        (["--source", "hdf5", "--hdf5-compression", "gzip"], "hdf5_compression needs chunks"),
        (["--fail-on", "hdf5.rate < -10%"], "add --compare FILE"),
        (["--compare", "/nowhere.json"], "cannot be read"),
    ],
)
def test_what_does_not_work_is_refused_before_anything_is_measured(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["input", "--data-dir", str(tmp_path / "data"), *options]) in {1, 2}
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_rank_needs_a_batch_of_its_own_files() -> None:
    with pytest.raises(UsageError, match="exceeds the 24 samples per rank"):
        InputConfig(files=8, samples=100).check_world(4)
    InputConfig(files=4, samples=128).check_world(4)


def test_samples_are_tokens_that_two_bytes_hold() -> None:
    spec = describe_samples(5, 4099, 3)
    tokens = RandomTokens().generate(spec, 0, 5)["tokens"]
    assert (tokens.shape, spec.sample_bytes) == ((5, 1024), 4096)
    assert 0 <= tokens.min() < tokens.max() < 1 << 16
    assert (RandomTokens().generate(spec, 2, 4)["tokens"] == tokens[2:4]).all()
