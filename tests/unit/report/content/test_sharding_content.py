"""Tables of collectives by phase and layer, and of all-gathers of sharded parameters."""

import io
from typing import Any

from perfkit.records.per_rank.sharding import IssuedCollectives, ParameterGathers, ShardedParameters
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import reporter
from perfkit.tables.specification import Table
from tests.support.reports.report_builders import MS, make_rank, make_report, make_run
from tests.support.reports.tables import table_of

STEPS = 2


def make_issued(**changes: Any) -> IssuedCollectives:
    """All-gathers of a rank of two steps, as everything here is."""
    fields: dict[str, Any] = {
        "dimension": "shard",
        "operator": "all_gather",
        "phase": "forward",
        "layer": None,
        "count": 4,
        "bytes": 8_000_000,
        "unsized": 0,
        "total_ns": 40 * MS,
        "exposed_ns": 20 * MS,
    }
    return IssuedCollectives(**(fields | changes))


def make_gathers(**changes: int | str | None) -> ParameterGathers:
    """All-gathers of backward without any cause of exposed time."""
    fields: dict[str, Any] = dict.fromkeys(ParameterGathers.__struct_fields__, 0)
    fields |= {"phase": "backward", "layer": None, "count": 4, "total_ns": 40 * MS}
    return ParameterGathers(**(fields | changes))


def make_sharded(*rows: ParameterGathers, **changes: int | None) -> ShardedParameters:
    fields: dict[str, Any] = dict.fromkeys(ShardedParameters.__struct_fields__, 0)
    return ShardedParameters(**(fields | {"gathers": list(rows)} | changes))


def run_of(*rows: IssuedCollectives, sharded: ShardedParameters | None = None) -> RunReport:
    return make_run(ranks=[make_rank(0, issued_collectives=list(rows), sharded_parameters=sharded)])


def texts(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[cell.text for cell in row] for row in table.rows]


def test_one_phase_says_nothing() -> None:
    assert table_of(run_of(), "sharding", "Collectives by phase") is None
    run = run_of(make_issued(phase="backward"), make_issued(phase="backward", layer="layers.0"))
    assert table_of(run, "sharding", "Collectives by phase") is None


def test_phases_add_up_over_layers() -> None:
    run = run_of(
        make_issued(layer="layers.0"),
        make_issued(layer="layers.1", bytes=2_000_000, unsized=1),
        make_issued(phase=None, exposed_ns=0),
    )
    table = table_of(run, "sharding", "Collectives by phase")
    assert texts(table) == [
        ["all_gather", "forward", "4", "≥ 5.00 MB", "40.0 ms", "20.0 ms", "17.4 %"],
        ["all_gather", "other", "2", "4.00 MB", "20.0 ms", "0", "0.0 %"],
    ]
    assert table is not None
    assert table.remark.startswith("other: issued outside")


def test_a_dimension_is_named_where_there_are_several() -> None:
    run = run_of(make_issued(), make_issued(dimension=None, phase="backward"))
    assert [row[0] for row in texts(table_of(run, "sharding", "Collectives by phase"))] == ["unknown", "shard"]


def test_layers_are_escaped_and_cut() -> None:
    rows = [make_issued(layer=f"layers.{k}\x1b", exposed_ns=k * MS) for k in range(3)]
    assert table_of(run_of(make_issued()), "sharding", "Collectives by layer", 10) is None
    table = table_of(run_of(*rows), "sharding", "Collectives by layer", 2)
    assert [row[0] for row in texts(table)] == ["layers.2\\x1b", "layers.1\\x1b"]
    assert table is not None
    assert table.remark == "1 more, 0 exposed"


def test_only_causes_that_occur_have_a_column() -> None:
    sharded = make_sharded(make_gathers(exposed_ns=12 * MS, late_ns=8 * MS, short_ns=4 * MS))
    table = table_of(run_of(sharded=sharded), "sharding", "All-gathers")
    assert table is not None
    assert [column.title for column in table.columns][5:] == ["exposed", "issued late", "too little compute"]
    assert texts(table) == [["backward", "2", "–", "20.0 ms", "70.0 %", "6.00 ms", "4.00 ms", "2.00 ms"]]
    assert table.remark == "issued late: compute ran before its issue"


def test_where_the_host_waits_nothing_is_hidden() -> None:
    """Autograd's operators around a wait count as compute."""
    row = make_gathers(exposed_ns=4 * MS, synchronous_ns=4 * MS, waited_ns=40 * MS)
    table = table_of(run_of(sharded=make_sharded(row)), "sharding", "All-gathers")
    assert texts(table)[0][4] == "0.0 %"


def test_the_tail_of_backward_is_a_remark() -> None:
    sharded = make_sharded(make_gathers(), reductions=4, reductions_exposed_ns=6 * MS, tail_ns=2 * MS)
    table = table_of(run_of(sharded=sharded), "sharding", "All-gathers")
    assert table is not None
    assert (
        table.remark
        == "gradients: 3.00 ms of their reduction is exposed, 1.00 ms of it after the last compute of backward"
    )
    assert table_of(run_of(), "sharding", "All-gathers") is None


def test_csv_has_a_row_per_place() -> None:
    stream = io.StringIO()
    reporter(Report, "collectives").write(
        make_report(run_of(make_issued(layer="=1+1"), make_issued(phase=None))), stream, top=1
    )
    lines = stream.getvalue().splitlines()
    assert lines[0] == "run,rank,dimension,operator,phase,layer,count,bytes,unsized,total_ns,exposed_ns"
    assert lines[1].endswith(",0,shard,all_gather,forward,'=1+1,4,8000000,0,40000000,20000000")
    assert lines[2].endswith(",0,shard,all_gather,,,4,8000000,0,40000000,20000000")
