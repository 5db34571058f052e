"""The options of `perfkit run WORKLOAD`, from the command line to a job."""

import msgspec
import pytest
import typer

from perfkit.cli.recording.run_options import check_packages, parse_job
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit_workloads.data.hdf5 import Hdf5

PLACE = ("--trace-dir", "t")


def test_options_resolve_to_what_a_run_writes_into_its_manifest() -> None:
    job = parse_job(["transformer", "--preset", "tiny", "--source=hdf5", "--no-overlap", *PLACE])
    expected = {"batch_size": 8, "d_model": 32, "source": "hdf5", "overlap": False, "data_dir": "t/.data"}
    assert {name: job.effective[name] for name in expected} == expected
    assert msgspec.json.decode(msgspec.json.encode(job.effective)) == job.effective


def test_a_source_brings_its_options() -> None:
    chunked = parse_job(["gpt", "--source", "hdf5", "--hdf5-chunk", "4"])
    assert isinstance(chunked.source, Hdf5)
    assert (chunked.source.config.hdf5_chunk, chunked.effective["hdf5_chunk"]) == (4, 4)
    assert "hdf5_chunk" not in parse_job(["gpt", "--hdf5-compression", "none"]).effective


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["nothing"], "unknown workload 'nothing': choose from transformer, gpt"),
        (["gpt", "--stpes", "3"], "No such option: --stpes"),
        (["gpt", "--steps=1"], "1 step is too few for the schedule"),
        (["gpt", "--source=tape"], "'tape' is not one of"),
        (["gpt", "--hdf5-chunk=4"], "hdf5_chunk is for source hdf5, not memory"),
        (["gpt", "--source=safetensors", "--hdf5-compression=gzip"], "hdf5_compression is for source hdf5, not safet"),
        (["gpt", "--source=hdf5", "--hdf5-compression=gzip"], "hdf5_compression needs chunks"),
        (["gpt", "--source=hdf5", "--hdf5-chunk=0"], "--hdf5-chunk = 0: expected a whole number of at least 1"),
        (["gpt", "--top-k=1"], "top_k has no effect without experts"),
        (["gpt", "--eval-batches=2"], "--eval-batches has no effect without --eval-interval"),
        (["gpt", "--captures=3"], "--captures 3 has no effect without --capture-when"),
        (["gpt", "--capture-bytes=1GiB"], "--capture-bytes 1GiB has no effect without --capture-when"),
        (["gpt", "loose"], "unexpected extra argument(s) (loose)"),
        (["gpt", "--config=none.toml"], "--config none.toml: No such file"),
    ],
)
def test_invalid_options_are_refused_by_name(command: list[str], error: str) -> None:
    with pytest.raises((UsageError, typer.TyperException)) as caught:
        parse_job(command)
    refused = caught.value
    assert isinstance(refused, UsageError | typer.TyperException)
    assert error in (str(refused) if isinstance(refused, UsageError) else refused.format_message())
    assert refused.exit_code == 2


@pytest.mark.parametrize(("source", "package", "extra"), [("hdf5", "h5py", "run"), ("arrow", "pyarrow", "arrow")])
def test_a_missing_package_is_one_line(source: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = parse_job(["gpt", "--source", source])
    check_packages(job)
    monkeypatch.setattr("perfkit.cli.typer_app.find_spec", lambda name: None if name == package else name)
    with pytest.raises(
        LaunchEnvironmentError, match=rf"needs {package}, which is not installed: pip install 'perfkit\[{extra}\]'"
    ):
        check_packages(job)
