"""Tables of collectives by phase and layer, and of all-gathers of sharded parameters."""

from typing import Any

from perfkit.records.per_rank.sharding import IssuedCollectives, ParameterGathers, ShardedParameters
from perfkit.records.run import RunReport
from perfkit.tables.specification import Table
from tests.support.reports.report_builders import MS, make_rank, make_run
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


def test_where_the_host_waits_nothing_is_hidden() -> None:
    """Autograd's operators around a wait count as compute."""
    row = make_gathers(exposed_ns=4 * MS, synchronous_ns=4 * MS, waited_ns=40 * MS)
    table = table_of(run_of(sharded=make_sharded(row)), "sharding", "All-gathers")
    assert texts(table)[0][4] == "0.0 %"
