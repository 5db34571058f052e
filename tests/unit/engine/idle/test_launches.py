"""How far the host launches ahead, from launches and kernels whose times are known."""

from pathlib import Path

import perfkit
from perfkit.records.per_rank.idle import LaunchStats, add_launches
from perfkit.records.run import RunReport
from perfkit.report import build_document
from tests.support.traces.trace_builder import TraceBuilder


def run_of(builder: TraceBuilder, folder: Path) -> RunReport:
    return perfkit.analyze(builder.write(folder / "rank0.json"), cache=False).runs[0]


def ahead_of_the_device() -> TraceBuilder:
    """Three launches before the first kernel ends, then one into an empty queue."""
    builder = TraceBuilder(backend=None).step(0, 0, 100)
    for number, (launch, start, length) in enumerate(((1, 10, 20), (4, 30, 5), (7, 35, 5), (60, 62, 1)), 1):
        builder.launch(number, launch, 2).kernel("k", start, length, number)
    return builder.kernel("without_launch", 80, 5)


def test_launches_of_a_device(tmp_path: Path) -> None:
    stats = run_of(ahead_of_the_device(), tmp_path).ranks[0].launches
    assert stats == LaunchStats(
        count=4,
        call_ns=8_000,
        call_median_ns=2_000,
        kernel_ns=31_000,
        shorter=1,
        shorter_ns=1_000,
        delay_ns=7_000 + 24_000 + 26_000 + 0,
        max_delay_ns=26_000,
        ahead=0 + 1 + 2 + 0,
        max_ahead=2,
        on_idle_device=2,
    )


def test_what_is_launched_outside_of_steps_is_queued_but_does_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder(backend=None).step(0, 50, 100)
    builder.launch(1, 10, 2).kernel("k", 20, 50, 1).launch(2, 55, 2).kernel("k", 70, 10, 2)
    stats = run_of(builder, tmp_path).ranks[0].launches
    assert stats is not None
    assert (stats.count, stats.ahead, stats.on_idle_device) == (1, 1, 0)


def test_a_kernel_that_begins_before_its_call_ends_has_no_delay(tmp_path: Path) -> None:
    builder = TraceBuilder(backend=None).step(0, 0, 100).launch(1, 10, 10).kernel("k", 12, 5, 1)
    stats = run_of(builder, tmp_path).ranks[0].launches
    assert stats is not None
    assert (stats.delay_ns, stats.shorter) == (0, 1)


def test_without_launches_there_are_no_statistics(tmp_path: Path) -> None:
    builder = TraceBuilder(backend=None).step(0, 0, 100)
    run = run_of(builder.op("aten::mm", 1, 5), tmp_path)
    assert run.ranks[0].launches is None
    assert add_launches([None, None]) is None
    titles = [table.title for table in build_document(run, 10).sections[0].tables]
    assert not any(title.startswith("Launches") for title in titles)


def test_the_table(tmp_path: Path) -> None:
    run = run_of(ahead_of_the_device(), tmp_path)
    (table,) = [one for one in build_document(run, 10).sections[0].tables if one.title.startswith("Launches")]
    assert [f"{cell.text} {cell.note}".strip() for cell in table.rows[0]] == [
        *("4", "2.00 µs", "7.75 µs", "25.0 %", "14.2 µs max 26.0 µs", "0.75 max 2", "50.0 %"),
    ]
