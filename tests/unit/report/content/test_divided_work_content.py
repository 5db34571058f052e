"""The table of work divided between ranks."""

from typing import Any

from perfkit.records.per_rank.sharding import DividedWork
from tests.support.reports.report_builders import MS, make_run
from tests.support.reports.tables import table_of


def make_divided(**changes: Any) -> DividedWork:
    """Tensor parallelism of which little is known."""
    fields: dict[str, Any] = dict.fromkeys(DividedWork.__struct_fields__)
    known = {
        "dimension": "tp",
        "collectives": 16.0,
        "total_ns": 8.0 * MS,
        "exposed_ns": 6.0 * MS,
        "compute_ns": 40.0 * MS,
    }
    return DividedWork(**(fields | known | changes))


def test_what_is_known_is_shown_per_layer_and_token() -> None:
    row = make_divided(layers=4, tokens=1000, bytes=2_000_000.0, wait_ns=2.0 * MS, sequence_parallel=False)
    table = table_of(
        make_run(divided_work=[row, make_divided(dimension="ep", imbalance=1.432)]), "sharding", "Work of layers"
    )
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == [
        "tp",
        "16",
        "4",
        "8.00 ms",
        "8.00 µs",
        "6.00 ms",
        "2.00 ms",
        "40.0 ms",
    ]
    assert [cell.note for cell in table.rows[0]][4:6] == ["2.00 kB", "75.0 %"]
    assert [cell.text for cell in table.rows[1]][2:5] == ["–", "8.00 ms", "–"]
    assert table.remark == "tp: not sequence-parallel; ep: fullest rank: 1.43 times the mean tokens"
    assert table_of(make_run(), "sharding", "Work of layers") is None
