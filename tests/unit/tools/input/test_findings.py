"""What a benchmark of input warns of, and when it is silent."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from perfkit.records.benchmark import HiddenLoads, InputBenchmark
from perfkit.report import build_charts, build_document
from perfkit.tools.input.findings import find_problems
from perfkit.tools.input.measure.page_cache import find_stripes
from tests.support.reports.input_builders import FILE, HDF5, MEMORY, benchmark, measurement

SAME = {0: [7], 1: [7]}


def sound(cold: float | None = 0.0, warm: float | None = 1.0, ranks: int = 1) -> InputBenchmark:
    times = [1.0, 1.1, 1.2]
    rows = [
        measurement(0, times, ranks=ranks),
        measurement(1, [9.0, 9.1, 9.2], "cold", ranks, cached_share=cold, file_share=0.5),
        measurement(1, times, ranks=ranks, cached_share=warm),
    ]
    return benchmark(rows, files=[FILE])


def codes(record: InputBenchmark, checksums: dict[int, list[int]] = SAME) -> list[str]:
    return [one.code for one in find_problems(record, checksums)]


def test_a_sound_benchmark_has_no_finding() -> None:
    assert codes(sound()) == []
    assert codes(sound(warm=None)) == [], "where the system does not report it, nothing is claimed"


def test_other_batches_of_the_same_order_are_an_error() -> None:
    (found,) = find_problems(sound(), {0: [7], 1: [8]})
    assert (found.code, found.severity) == ("different_batches", "error")
    assert "hdf5 batched gives other batches than memory batched" in found.message
    divided = replace(sound(), series=[MEMORY, replace(HDF5, files=2)])
    assert codes(divided, {0: [7], 1: [8]}) == [], "files divide the samples in another order"


def test_the_other_state_of_the_cache_is_named() -> None:
    assert codes(sound(cold=0.5)) == codes(sound(cold=None)) == ["cache_not_dropped"]
    assert codes(sound(warm=0.5)) == ["not_cached"]


@pytest.mark.parametrize(
    ("stripes", "size", "ranks", "expected"),
    [
        (1, 1 << 30, 2, ["one_stripe"]),
        (1, 1 << 30, 1, []),
        (1, 1 << 20, 2, []),
        (4, 1 << 30, 2, []),
        (None, 1 << 30, 2, []),
    ],
)
def test_one_storage_target_is_advised_against_where_it_matters(
    stripes: int | None, size: int, ranks: int, expected: list[str]
) -> None:
    record = replace(sound(ranks=ranks), files=[replace(FILE, stripe_count=stripes, bytes=size)])
    assert codes(record) == expected


def test_stripes_are_what_lfs_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data.h5"
    file.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_stripes(file) is None
    tool = tmp_path / "lfs"
    tool.write_text('#!/bin/sh\ncase "$2" in --stripe-count) echo 4;; --stripe-size) echo 1048576;; esac\n')
    tool.chmod(0o755)
    assert find_stripes(file) == (4, 1 << 20)
    tool.write_text("#!/bin/sh\necho not on Lustre >&2; exit 1\n")
    assert find_stripes(file) is None


def test_the_report_has_a_row_per_series_and_names_the_extremes() -> None:
    hidden = HiddenLoads(series=1, step_ns=20_000_000, load_ns=1e6, wait_ns=1e5, hidden=0.9)
    record = replace(sound(ranks=2), hidden=[hidden])
    (section,) = build_document(record, 10).sections
    titles = {table.title.partition(":")[0]: table for table in section.tables}
    assert [row[0].text for row in titles["Warm"].rows] == ["memory batched", "hdf5 batched"]
    (cold,) = titles["Cold"].rows
    assert [cell.text for cell in cold] == ["hdf5 batched", "220", "220 kB/s", "9.10 ms", "27.3 ms", "50 %"]
    assert titles["Beside steps of 20.0 ms, warm"].rows[0][3].text == "90 %"
    assert len(titles["By rank, warm"].rows) == 4
    (chart,) = build_charts(record).sections[0]
    assert [one["y"] for one in chart.spec["data"]] == [[None, 9.1], [1.1, 1.1]]


def test_the_headline_names_the_fastest_and_the_slowest() -> None:
    record = benchmark([measurement(0, [1, 1, 1]), measurement(1, [4, 4, 4])])
    headline = build_document(record, 10).sections[0].headline
    assert headline == ("Warm, a load takes 1.00 ms from memory batched, and 4.00 ms (4.0 times) from hdf5 batched.")
