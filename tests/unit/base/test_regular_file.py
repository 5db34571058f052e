"""A file is read into memory only if it is not too large, and all of it is stored."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit.base.regular_file import read_regular
from perfkit.errors import PerfkitError
from perfkit.storage.memory_snapshot_file import read_snapshot
from perfkit.storage.report_file import load_collectives, load_report
from perfkit.storage.run_folder import MANIFEST_NAME, SWEEP_NAME, read_manifest, read_sweep

READERS: dict[str, Callable[[Path], object]] = {
    MANIFEST_NAME: lambda path: read_manifest(path.parent),
    SWEEP_NAME: lambda path: read_sweep(path.parent),
    "report.json": load_report,
    "collectives.json": load_collectives,
    "rank0.memory.pickle": read_snapshot,
}


def has_holes(path: Path) -> bool:
    """Whether the file system tells which parts of a file are not stored."""
    with path.open("rb") as stream:
        return os.lseek(stream.fileno(), 0, os.SEEK_HOLE) < path.stat().st_size


@pytest.mark.parametrize("name", READERS)
def test_a_sparse_file_in_a_foreign_folder_costs_no_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"{")
    os.truncate(path, 300_000_000)
    if not has_holes(path):
        pytest.skip("the file system stores all of a sparse file, or does not tell")
    tracemalloc.start()
    with pytest.raises(PerfkitError, match="it is a sparse file"):
        READERS[name](path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("name", [MANIFEST_NAME, SWEEP_NAME])
def test_what_is_too_large_is_refused_with_the_limit(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"{")
    os.truncate(path, 600_000_000)
    with pytest.raises(PerfkitError, match=r"it is larger than 536,870,912 bytes$"):
        READERS[name](path)


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_a_whole_file_is_read(size: int, tmp_path: Path) -> None:
    path = tmp_path / "whole"
    path.write_bytes(bytes(size))
    assert read_regular(path) == bytes(size)
    assert read_regular(path, most_bytes=size) == bytes(size)
    if size:
        with pytest.raises(OSError, match=f"larger than {size - 1:,} bytes"):
            read_regular(path, most_bytes=size - 1)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
def test_room_is_taken_for_what_a_file_has_not_for_what_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"content")
    read = (
        "import resource, sys; from perfkit.base.regular_file import read_regular; "
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); "
        "print(read_regular(sys.argv[1], most_bytes=8 << 30).decode())"
    )
    done = subprocess.run([sys.executable, "-c", read, tmp_path / "small"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("content\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_file_that_has_more_than_its_size_is_read_whole() -> None:
    assert read_regular("/proc/self/status").startswith(b"Name:")
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_regular("/proc/self/status", most_bytes=10)
