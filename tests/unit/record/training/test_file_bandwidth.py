"""How fast a file can be read, and that measuring it leaves the page cache as it was."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from perfkit.record.training.file_bandwidth import BLOCK_BYTES, cached_pages, is_cached, measure_file_bandwidth
from perfkit.record.training.worker import _file_bandwidth

SIZE = 3 * BLOCK_BYTES + 12_345
ALMOST = 0.8
NOBODY = 65_534


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "samples"
    with path.open("wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
    return path


def cached(path: Path) -> float:
    with path.open("rb") as file:
        pages = cached_pages(path, file.fileno(), SIZE)
    if pages is None:
        pytest.skip("this system does not report what is in its page cache")
    return float(pages.mean())


@pytest.fixture
def cold(samples: Path) -> Iterator[int]:
    """The descriptor of the file, none of which is in the page cache."""
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("no posix_fadvise")
    descriptor = os.open(samples, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if cached(samples) > 0:
        os.close(descriptor)
        pytest.skip("this file system keeps files in memory")
    yield descriptor
    os.close(descriptor)


def test_a_file_is_read_whole_and_from_the_cache_where_it_lies(samples: Path) -> None:
    samples.read_bytes()
    found = measure_file_bandwidth(samples)
    assert found is not None
    assert found.read_bytes == SIZE
    assert found.bytes_per_s == pytest.approx(SIZE * 1e9 / found.wall_ns)
    assert cached(samples) > ALMOST  # the kernel takes pages back where memory is short
    assert found.cached_share is not None
    assert found.cached_share > ALMOST


def test_measuring_leaves_what_was_not_cached_where_it_was(samples: Path, cold: int) -> None:
    found = measure_file_bandwidth(samples)
    assert found is not None
    assert found.read_bytes == SIZE
    assert found.cached_share is not None
    assert found.cached_share < 0.2
    assert cached(samples) < 0.2


def test_whether_a_file_is_cached_is_known_where_most_of_it_is_or_is_not(samples: Path, cold: int) -> None:
    assert is_cached(samples) is False
    os.posix_fadvise(cold, 0, 0, os.POSIX_FADV_RANDOM)  # no more than is asked for
    os.pread(cold, BLOCK_BYTES, BLOCK_BYTES)
    assert is_cached(samples) is None
    samples.read_bytes()
    assert is_cached(samples) is True


def test_what_was_cached_stays_cached(samples: Path, cold: int) -> None:
    os.posix_fadvise(cold, 0, 0, os.POSIX_FADV_RANDOM)  # no more than is asked for
    os.pread(cold, BLOCK_BYTES, BLOCK_BYTES)
    before = cached(samples)
    assert 0.2 < before < 0.5
    found = measure_file_bandwidth(samples)
    assert found is not None
    assert found.cached_share == pytest.approx(before, abs=0.1)
    with samples.open("rb") as file:
        pages = cached_pages(samples, file.fileno(), SIZE)
    assert pages is not None
    kept, dropped = pages[len(pages) // 3 + 1 : 2 * len(pages) // 3 - 1], pages[-len(pages) // 4 :]
    assert np.mean(kept) > ALMOST
    assert np.mean(dropped) < 0.2


def test_it_ends_with_the_block_that_is_under_way_when_time_is_up(samples: Path) -> None:
    found = measure_file_bandwidth(samples, most_ns=1)
    assert found is not None
    assert found.read_bytes == BLOCK_BYTES


def test_nothing_to_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert measure_file_bandwidth(empty) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_what_is_cached_is_unknown_to_users_who_may_not_see_it(samples: Path) -> None:
    samples.chmod(0o644)
    with samples.open("rb") as file:
        os.seteuid(NOBODY)
        try:
            assert cached_pages(samples, file.fileno(), SIZE) is None
        finally:
            os.seteuid(0)


def test_a_file_that_is_gone_does_not_fail_the_run(tmp_path: Path) -> None:
    assert _file_bandwidth(tmp_path / "gone") == f"{tmp_path}/gone cannot be read again (No such file or directory)"
    assert _file_bandwidth(None) is None
