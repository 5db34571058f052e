"""All sources give the same samples, and files are checked before reuse."""

import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pytest
import safetensors
import torch
from torch.utils.data import DistributedSampler, SequentialSampler

from perfkit.errors import StoreError, UsageError
from perfkit_workloads.base import DataSpec, Field, Workload
from perfkit_workloads.data import SOURCES, DataOptions
from perfkit_workloads.data.arrow_file import inspect_file, open_batched, open_per_sample
from perfkit_workloads.data.files import FileSource
from perfkit_workloads.data.loader import make_loader
from perfkit_workloads.data.source import Source
from tests.support.processes.launching import LIMIT_S
from tests.unit.workloads.conftest import make, make_source

LAYOUTS: dict[str, dict[str, Any]] = {name: {"source": name} for name in SOURCES.builtin} | {
    "hdf5-chunked": {"source": "hdf5", "hdf5_chunk": 7},
    "hdf5-gzip": {"source": "hdf5", "hdf5_chunk": 1, "hdf5_compression": "gzip"},
    "hdf5-lzf": {"source": "hdf5", "hdf5_chunk": 500, "hdf5_compression": "lzf"},
}
"""Every source with its defaults, and more layouts of some."""

FILES = [name for name, layout in LAYOUTS.items() if issubclass(SOURCES.load(layout["source"]), FileSource)]
FORMATS = [name for name in FILES if LAYOUTS[name]["source"] in ("hdf5", "safetensors", "pt", "arrow")]
"""Files that these tests can read and damage by other means than perfkit's."""

FLOATS = [name for name in FILES if name != "bin"]
"""Files that can hold any samples; `bin` holds tokens."""

FILE_SOURCES = [name for name in FILES if name in SOURCES]
WORKERS: dict[str, dict[str, Any]] = {
    "0": {},
    "2-fork": {"num_workers": 2, "worker_start": "fork"},
    "2-forkserver": {"num_workers": 2, "prefetch": 3},
}
SEED = 5


Reader = tuple[Source[Any], DataOptions]


def suited(layout: str, workload: Workload[Any]) -> Workload[Any]:
    """Return `workload`, or one of tokens where the layout holds nothing else."""
    return make("gpt", samples=300, block=20) if LAYOUTS[layout]["source"] == "bin" else workload


def loader_of(workload: Workload[Any], reader: Reader, *, rank: int = 0) -> Any:
    (source, options), spec = reader, workload.data_spec(SEED)
    dataset = source.dataset(workload, spec, source.prepare(workload, spec, options), options)
    sampler: Any = DistributedSampler(dataset, num_replicas=2, rank=rank, seed=SEED)
    sampler.set_epoch(1)
    return make_loader(dataset, sampler, options, batch_size=32)


def batches_of(loader: Iterable[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    # Clones: a worker's batch lies in shared memory.
    return [{name: tensor.clone() for name, tensor in batch.items()} for batch in loader]


def same(a: list[dict[str, torch.Tensor]], b: list[dict[str, torch.Tensor]]) -> bool:
    return len(a) == len(b) and all(
        list(x) == list(y) and all(torch.equal(x[name], y[name]) for name in x) for x, y in zip(a, b, strict=True)
    )


def expected(workload: Workload[Any], *, rank: int = 0) -> list[dict[str, torch.Tensor]]:
    """Batches made without any source: the sampler's indices, looked up in the generated arrays."""
    spec = workload.data_spec(SEED)
    arrays = workload.generate(spec, 0, spec.samples)
    sampler: Any = DistributedSampler(range(spec.samples), num_replicas=2, rank=rank, seed=SEED)  # type: ignore[arg-type]
    sampler.set_epoch(1)
    order = list(sampler)
    groups = [order[i : i + 32] for i in range(0, len(order) - 31, 32)]
    return [{name: torch.from_numpy(array[g]) for name, array in arrays.items()} for g in groups]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("read", ["per-sample", "batched"])
@pytest.mark.parametrize("source", SOURCES.builtin)
def test_batches_are_the_same_however_they_are_read(
    source: str, read: str, workers: str, small: Workload[Any], tmp_path: Path
) -> None:
    reader = make_source(**LAYOUTS[source], **WORKERS[workers], read=read, data_dir=str(tmp_path))
    small = suited(source, small)
    loader = loader_of(small, reader)
    assert same(batches_of(loader), expected(small))
    assert same(batches_of(loader), expected(small)), "a second epoch of the same loader"


@pytest.mark.slow  # every spawned worker imports torch
@pytest.mark.parametrize("source", SOURCES.builtin)
def test_spawned_workers_read_the_same(source: str, small: Workload[Any], tmp_path: Path) -> None:
    spawned = {"num_workers": 1, "worker_start": "spawn"}
    reader = make_source(**LAYOUTS[source], **spawned, read="batched", data_dir=str(tmp_path))
    small = suited(source, small)
    assert same(batches_of(loader_of(small, reader)), expected(small))


@pytest.mark.parametrize("read", ["per-sample", "batched"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rank", [0, 1])
def test_batches_are_the_same_for_every_layout(
    rank: int, layout: str, read: str, small: Workload[Any], tmp_path: Path
) -> None:
    reader = make_source(**LAYOUTS[layout], read=read, data_dir=str(tmp_path))
    small = suited(layout, small)
    assert same(batches_of(loader_of(small, reader, rank=rank)), expected(small, rank=rank))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_of_tokens_are_the_same_for_every_layout(layout: str, tmp_path: Path) -> None:
    workload = make("gpt", samples=100)
    found = batches_of(loader_of(workload, make_source(**LAYOUTS[layout], data_dir=str(tmp_path))))
    assert same(found, expected(workload))
    assert found[0]["tokens"].dtype == torch.int32


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("read", ["per-sample", "batched"])
def test_what_was_opened_before_a_fork_is_not_used_after_it(
    read: str, layout: str, small: Workload[Any], tmp_path: Path
) -> None:
    reader = make_source(**LAYOUTS[layout], **WORKERS["2-fork"], read=read, data_dir=str(tmp_path))
    small = suited(layout, small)
    loader = loader_of(small, reader)
    first = loader.dataset[3 if read == "per-sample" else [3]]
    assert same(batches_of(loader), expected(small))
    again = loader.dataset[3 if read == "per-sample" else [3]]
    assert same([first], [again])


def test_a_batch_is_a_copy(small: Workload[Any], tmp_path: Path) -> None:
    """Writing into a batch changes neither the next epoch nor the file."""
    for layout in LAYOUTS:
        workload = suited(layout, small)
        loader = loader_of(workload, make_source(**LAYOUTS[layout], data_dir=str(tmp_path)))
        for batch in loader:
            next(iter(batch.values())).zero_()
        assert same(batches_of(loader), expected(workload))


def test_incomplete_batches_are_dropped(small: Workload[Any]) -> None:
    source, options = make_source()
    dataset: Any = source.dataset(small, small.data_spec(0), None, options)
    assert len(make_loader(dataset, SequentialSampler(dataset), options, 64)) == 4
    assert len(make_loader(dataset, SequentialSampler(dataset), options, 300)) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")
def test_pinned_memory_needs_an_accelerator(small: Workload[Any]) -> None:
    source, options = make_source(pin_memory=True)
    dataset: Any = source.dataset(small, small.data_spec(0), None, options)
    with pytest.raises(UsageError, match="pin_memory needs an accelerator"):
        make_loader(dataset, SequentialSampler(dataset), options, 4)


# ---- the files -----------------------------------------------------------------------------------


def prepare(workload: Workload[Any], layout: str, folder: Path, seed: int = SEED) -> Path:
    source, options = make_source(**LAYOUTS[layout], data_dir=str(folder))
    workload = suited(layout, workload)
    path = source.prepare(workload, workload.data_spec(seed), options)
    assert path is not None
    return path


def companions(layout: str, path: Path) -> list[Path]:
    source, _ = make_source(**LAYOUTS[layout])
    assert isinstance(source, FileSource)
    return source.companions(path)


def test_memory_writes_nothing(small: Workload[Any]) -> None:
    source, options = make_source()
    assert source.prepare(small, small.data_spec(0), options) is None


@pytest.mark.parametrize("name", FILE_SOURCES)
def test_a_source_with_files_needs_a_folder(name: str, small: Workload[Any]) -> None:
    source, options = make_source(source=name)
    with pytest.raises(UsageError, match=f"source {name} needs a folder"):
        source.prepare(small, small.data_spec(0), options)


@pytest.mark.parametrize("layout", FORMATS)
def test_files_can_be_read_by_anyone(layout: str, small: Workload[Any], tmp_path: Path) -> None:
    path = prepare(small, layout, tmp_path)
    arrays = small.generate(small.data_spec(SEED), 0, 300)
    assert small.data_spec(SEED).fingerprint[:12] in path.name
    for name, wanted in arrays.items():
        if path.suffix == ".h5":
            with h5py.File(path) as file:
                found = file[name][:]
                assert file[name].chunks is None or "chunk" in path.name
                assert (file[name].compression is None) == (layout in {"hdf5", "hdf5-chunked"})
        elif path.suffix == ".pt":
            found = torch.load(path, weights_only=True)[name].numpy()
        elif path.suffix == ".arrow":
            with pyarrow.memory_map(str(path)) as mapped:
                found = np.array(pyarrow.ipc.open_stream(mapped).read_all()[name].to_pylist(), wanted.dtype)
        else:
            with safetensors.safe_open(path, framework="numpy") as file:
                found = file.get_tensor(name)
        assert (found == wanted).all()
    assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")] == [path.name]


@pytest.mark.parametrize("layout", FILES)
def test_a_matching_file_is_reused_even_from_a_read_only_folder(
    layout: str, small: Workload[Any], tmp_path: Path
) -> None:
    path = prepare(small, layout, tmp_path)
    before = path.stat()
    (tmp_path / f".{path.name}.lock").unlink()
    assert prepare(small, layout, tmp_path) == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert {*tmp_path.iterdir()} == {path, *companions(layout, path)}, "nothing was written, no lock either"


@pytest.mark.parametrize("layout", FILES)
def test_different_samples_get_a_different_file_and_a_stale_one_is_refused(
    layout: str, small: Workload[Any], tmp_path: Path
) -> None:
    path, other = prepare(small, layout, tmp_path), prepare(small, layout, tmp_path, SEED + 1)
    assert path != other
    for there, here in zip([other, *companions(layout, other)], [path, *companions(layout, path)], strict=True):
        there.rename(here)
    with pytest.raises(StoreError, match="stale") as caught:
        prepare(small, layout, tmp_path)
    assert str(path) in str(caught.value)
    assert "--data-dir" in str(caught.value)


@pytest.mark.parametrize("layout", FORMATS)
def test_a_foreign_file_is_refused(layout: str, small: Workload[Any], tmp_path: Path) -> None:
    path = prepare(small, layout, tmp_path)
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["source"] = [1.0]
    elif path.suffix == ".pt":
        torch.save({"source": torch.ones(1)}, path)
    elif path.suffix == ".arrow":
        with pyarrow.ipc.new_stream(path, pyarrow.schema({"source": "float32"})) as writer:
            writer.write(pyarrow.record_batch({"source": pyarrow.array([1.0, None], "float32")}))
    else:
        from safetensors.torch import save_file

        save_file({"source": torch.ones(1)}, path)
    with pytest.raises(StoreError, match="foreign"):
        prepare(small, layout, tmp_path)
    path.write_text("not even the format\n" * 100)
    with pytest.raises(StoreError, match="foreign"):
        prepare(small, layout, tmp_path)
    assert path.exists(), "it is the user's to remove"


@pytest.mark.parametrize("layout", FILES)
def test_a_truncated_file_is_refused(layout: str, small: Workload[Any], tmp_path: Path) -> None:
    path = prepare(small, layout, tmp_path)
    content = path.read_bytes()
    for length in (0, 5, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(StoreError, match="damaged") as caught:
            prepare(small, layout, tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layout", [name for name in FILE_SOURCES if name in FLOATS])
def test_data_larger_than_a_slab(layout: str, tmp_path: Path) -> None:
    """34 MB: the second slab is not full."""
    workload = make("transformer", samples=401, d_model=1024)
    path = prepare(workload, layout, tmp_path)
    assert path == prepare(workload, layout, tmp_path)
    reader = make_source(**LAYOUTS[layout], data_dir=str(tmp_path))
    assert same(batches_of(loader_of(workload, reader)), expected(workload))


def _prepare_after(barrier: Any, results: Any, folder: Path, layout: str) -> None:
    workload = make("transformer", samples=300, d_model=256, heads=2)
    barrier.wait()
    path = prepare(workload, layout, folder)
    results.put(path.stat().st_ino)


@pytest.mark.parametrize("layout", FILE_SOURCES)
def test_the_second_of_two_writers_waits(layout: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    target = partial(_prepare_after, barrier, results, tmp_path, layout)
    writers = [context.Process(target=target) for _ in range(2)]
    for writer in writers:
        writer.start()
    found = {results.get(timeout=LIMIT_S) for _ in writers}
    for writer in writers:
        writer.join(timeout=LIMIT_S)
        assert writer.exitcode == 0
    assert len(found) == 1, "the file was written once"


KILLED = """
import sys, time
from tests.unit.workloads.conftest import make, make_source
from tests.unit.workloads.test_sources import prepare
from pathlib import Path
workload = make("transformer", samples=300, d_model=16, heads=2, target_length=3)
generate = workload.generate
def slow(spec, start, stop):
    print("writing", flush=True)
    time.sleep(600)
    return generate(spec, start, stop)
workload.generate = slow
prepare(workload, "{layout}", Path("{folder}"))
"""


@pytest.mark.slow  # starts writers that import torch; the files are made by the same code as in other tests
@pytest.mark.parametrize("layout", [name for name in FILE_SOURCES if name in FLOATS])
def test_a_writer_that_is_killed_leaves_nothing_in_the_way(layout: str, small: Workload[Any], tmp_path: Path) -> None:
    code = KILLED.format(layout=layout, folder=tmp_path)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        writer.kill()
    assert list(tmp_path.glob(".*.tmp"))
    started = time.monotonic()
    path = prepare(small, layout, tmp_path)
    assert time.monotonic() - started < 120, "its lock died with it"
    assert prepare(small, layout, tmp_path) == path
    assert not list(tmp_path.glob(".*.tmp"))


FULL = """
import resource, sys
from pathlib import Path
from perfkit.errors import StoreError
from tests.unit.workloads.conftest import make, make_source
from tests.unit.workloads.test_sources import FLOATS, prepare
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for layout in FLOATS:
    try:
        prepare(make("transformer", samples=200), layout, Path(sys.argv[1]))
    except StoreError as error:
        print(error)
"""


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(FLOATS)
    assert all(f"cannot write {tmp_path}" in line and "File too large" in line for line in lines)
    assert {path.suffix for path in tmp_path.iterdir()} == {".lock"}
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1 << 20


def test_an_unusable_folder_is_one_clear_line(small: Workload[Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(StoreError, match=f"cannot write {folder}") as caught:
            prepare(small, "hdf5", folder)
        assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["file"]


def test_chunks_beyond_the_formats_limit_are_refused(tmp_path: Path) -> None:
    workload = make("transformer", samples=1 << 20, d_model=1024, target_length=1)
    source, options = make_source(source="hdf5", hdf5_chunk=1 << 20, data_dir=str(tmp_path))
    with pytest.raises(UsageError, match="4 GiB"):
        source.prepare(workload, workload.data_spec(0), options)


# ---- Arrow ---------------------------------------------------------------------------------------

SAVED: Path = Path(__file__).parent / "samples" / "datasets.arrow"
"""What `datasets` 5.2.0 wrote with `save_to_disk`: five rows of tokens, matrices and a text, two rows per batch."""

SAVED_SPEC = DataSpec(
    workload="saved",
    fields=(Field(name="tokens", shape=(3,), dtype="int32"), Field(name="m", shape=(2, 3), dtype="float32")),
    samples=5,
    seed=0,
)


def test_a_file_of_datasets_is_read_across_its_record_batches() -> None:
    tokens = torch.arange(15, dtype=torch.int32).reshape(5, 3)
    matrices = torch.arange(30, dtype=torch.float32).reshape(5, 2, 3)
    per_sample, batched = open_per_sample(SAVED, SAVED_SPEC), open_batched(SAVED, SAVED_SPEC)
    for index in range(5):
        sample = per_sample(index)
        assert torch.equal(sample["tokens"], tokens[index])
        assert torch.equal(sample["m"], matrices[index])
    order = [4, 0, 2, 2, 3]
    batch = batched(order)
    assert torch.equal(batch["tokens"], tokens[order])
    assert torch.equal(batch["m"], matrices[order])
    stored = inspect_file(SAVED)
    assert stored.fields == {"tokens": ((5, 3), "int32"), "m": ((5, 2, 3), "float32")}, "no column of texts"
    assert stored.stamp is None


def test_two_arrow_columns_of_one_name_are_a_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    batch = pyarrow.record_batch([pyarrow.array([1.0], "float32")] * 2, names=["source", "source"])
    with pyarrow.ipc.new_stream(path, batch.schema) as writer:
        writer.write(batch)
    with pytest.raises(ValueError, match="source"):
        open_per_sample(path, SAVED_SPEC)


def test_datasets_opens_what_was_written(small: Workload[Any], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    path = prepare(small, "arrow", tmp_path)
    opened = datasets.Dataset.from_file(str(path)).with_format("numpy")
    for name, wanted in small.generate(small.data_spec(SEED), 0, 300).items():
        assert (np.asarray(opened[:][name]) == wanted).all()
