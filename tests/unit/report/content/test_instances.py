"""Where a table's rows lead: to the longest of what they sum up, on the rank and in the step that it was in."""

from pathlib import Path

import perfkit
from perfkit.records.per_rank.work import WorkNode, WorkTree
from perfkit.records.per_rank.work_trees import add_trees
from perfkit.records.run import RunReport
from perfkit.report import build_document
from perfkit.tables.instances import collective_instances, kernel_instances, operator_instances, work_instances
from perfkit.tables.specification import Instance, Table
from tests.support.reports.tables import tables_of
from tests.support.traces.trace_builder import TraceBuilder
from tests.support.traces.work_traces import module_step

MS = 1_000_000


def run_of(folder: Path, device: bool) -> RunReport:
    """Two ranks, steps 3 to 5; the longest `mm` and the longest collective are rank 1's, in steps 4 and 5."""
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=2, backend="nccl" if device else "gloo")
        for step in (3, 4, 5):
            begin = step * 10_000
            longest, reduced = 3000 * (rank == 1 and step == 4), 2000 * (rank == 1 and step == 5)
            trace.step(step, begin, 9990)
            if device:
                trace.launch(step * 10, begin + 10, 5).kernel("mm", begin + 500, 1000 + longest, step * 10)
                trace.launch(step * 10 + 1, begin + 20, 5)
                trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin + 5000, 1000 + reduced, step * 10 + 1)
            else:
                trace.op("mm", begin + 500, 1000 + longest)
                trace.gloo("all_reduce", begin + 5000, 1000 + reduced)
        trace.write(folder / f"rank{rank}.json")
    (run,) = perfkit.analyze(folder).runs
    return run


def test_the_longest_kernel_and_collective(tmp_path: Path) -> None:
    run = run_of(tmp_path, device=True)
    # A step's window begins when the device has finished the one before: here, with the step on the host.
    expected = Instance("mm", ns=4 * MS, rank=1, step=4, at_ns=MS // 2)
    assert operator_instances(run)["mm", "compute"] == expected
    assert kernel_instances(run)["mm"] == expected
    (collective,) = collective_instances(run).values()
    assert collective == Instance("all_reduce", ns=3 * MS, rank=1, step=5, at_ns=5 * MS)


def test_operators_of_the_host_are_by_self_time(tmp_path: Path) -> None:
    run = run_of(tmp_path, device=False)
    assert operator_instances(run)["mm", "compute"] == Instance("mm", "largest self time", 4 * MS, 1, 4, MS // 2)


def test_of_equals_it_is_the_first(tmp_path: Path) -> None:
    trace = TraceBuilder(rank=0, world_size=1, backend="gloo")
    for step in range(3):
        trace.step(step, step * 1000, 990).op("mm", step * 1000 + 100, 50).op("mm", step * 1000 + 300, 50)
    (run,) = perfkit.analyze(trace.write(tmp_path / "rank0.json")).runs
    assert operator_instances(run)["mm", "compute"].step == 0
    assert operator_instances(run)["mm", "compute"].at_ns == 100_000


def test_the_longest_kernel_of_a_module_and_of_those_in_it(tmp_path: Path) -> None:
    for rank in range(2):
        builder = module_step(TraceBuilder(rank=rank, world_size=2))
        if rank == 1:
            builder.kernel("later", 950, 40)
        builder.write(tmp_path / f"rank{rank}.json")
    (run,) = perfkit.analyze(tmp_path).runs
    found = work_instances(run, "module")
    us = {path: (one.name, one.ns // 1000, one.rank, one.step, (one.at_ns or 0) // 1000) for path, one in found.items()}
    assert us["Net_0", "Block_0"] == ("Block_0", 80, 0, 1, 450)
    assert us["Net_0",] == ("Net_0", 120, 0, 1, 310)  # of the other block
    assert us["(unknown)",] == ("(unknown)", 40, 1, 1, 950)
    assert all(one.what == "longest kernel or copy in it" and one.is_inside for one in found.values())
    assert work_instances(run, "operator") == {}
    tables = {table.title.partition(" (")[0]: table for table in tables_of(run, "work")}
    rows = {row[0].text.strip(): row[0].instance for row in tables["Device time by module"].rows}
    assert rows["Net"] == work_instances(run, "class")["Net",]


def test_the_largest_self_time_of_a_module_on_the_host(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0, world_size=1, backend="gloo")
    for step in (3, 4):
        builder.step(step, step * 1000, 990).python_function("nn.Module: Net_0", step * 1000 + 10, 900)
        builder.op("aten::mm", step * 1000 + 100, 50 * step).op("aten::relu", step * 1000 + 400, 60)
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json")).runs
    found = work_instances(run, "module")["Net_0",]
    own = operator_instances(run)["aten::mm", "compute"]
    assert (found.ns, found.step, found.at_ns) == (own.ns, own.step, own.at_ns) == (200_000, 4, 100_000)
    assert found.what == "largest self time in it"


def test_traces_of_one_rank_are_added_up_with_their_longest() -> None:
    trees = [
        WorkTree(by="module", nodes=[WorkNode(depth=0, name="Net", total_ns=9, max_ns=ns, max_step=step, max_at_ns=7)])
        for ns, step in ((4, 1), (6, 2), (6, 3))
    ]
    (node,) = add_trees(trees).nodes
    assert (node.total_ns, node.max_ns, node.max_step, node.max_at_ns) == (27, 6, 2, 7)


def test_rows_lead_there(tmp_path: Path) -> None:
    report = perfkit.analyze(tmp_path) if run_of(tmp_path, device=True) else None
    (section,) = build_document(report, 10).sections
    tables = {table.title: table for table in section.tables}

    def first(title: str) -> Instance | None:
        table: Table = tables[title]
        return table.rows[0][0].instance

    mm = Instance("mm", ns=4 * MS, rank=1, step=4, at_ns=MS // 2)
    assert first("Top kernels (over 2 ranks)") == mm
    assert first("Device time by kernel and inputs (mean per step and rank)") == mm
    assert first("Collectives (over 2 ranks)") == Instance("all_reduce", ns=3 * MS, rank=1, step=5, at_ns=5 * MS)
