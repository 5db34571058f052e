"""Spans annotated by the program."""

from pathlib import Path

import perfkit
from perfkit.records.aggregate import MOST_IDLE_CAUSES, MOST_PHASES, OTHER_DETAILS, add_phases
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.rank import PhaseStat
from tests.support.traces.trace_builder import TraceBuilder


def phases_of(builder: TraceBuilder, tmp_path: Path) -> dict[str, tuple[int, int, int]]:
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json")).runs
    return {row.name: (row.count, row.total_ns, row.max_ns) for row in run.ranks[0].phases}


def test_phases_are_summed_by_name_without_steps_and_collectives(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 0, 100).step(1, 100, 100).op("aten::mm", 0, 1)
    builder.annotation("## forward ##", 5, 30).annotation("DistributedDataParallel.forward", 10, 20)
    builder.annotation("## forward ##", 105, 40).gloo("all_reduce", 60, 10).data_loading(1, 2)
    builder.annotation("before the steps", -50, 20)
    found = phases_of(builder, tmp_path)
    assert found["## forward ##"] == (2, 70_000, 40_000)
    assert found["DistributedDataParallel.forward"] == (1, 20_000, 20_000)
    assert next(iter(found)) == "## forward ##"
    assert not {"ProfilerStep#0", "gloo:all_reduce", "before the steps"} & set(found)


def test_steps_of_another_name_are_no_phases(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 1).annotation("train step 0", 0, 50).annotation("forward", 5, 30)
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json"), step_marker=r"step (\d+)").runs
    assert [step.step for step in run.ranks[0].steps] == [0]
    assert [row.name for row in run.ranks[0].phases] == ["forward"]


def test_a_number_in_each_name_does_not_make_the_report_long(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100_000).op("aten::mm", 0, 1)
    for number in range(300):
        builder.annotation(f"batch {number}", 10 * number, number)
    found = phases_of(builder, tmp_path)
    assert len(found) == MOST_PHASES
    assert "batch 299" in found


def test_the_layers_of_fsdp_are_one_phase(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100_000).op("aten::mm", 0, 1).annotation("FSDP::root_pre_forward", 1, 4)
    for layer in range(300):
        builder.annotation(f"FSDP::pre_forward (layers.{layer})", 10 * layer, layer)
        builder.annotation(f"FSDP::backward_prefetch for layers.{layer}", 50_000 + 10 * layer, 1)
    assert phases_of(builder, tmp_path) == {
        "FSDP::pre_forward": (300, 44_850_000, 299_000),
        "FSDP::backward_prefetch": (300, 300_000, 1_000),
        "FSDP::root_pre_forward": (1, 4_000, 4_000),
    }


def test_cycles_are_added_up() -> None:
    rows = [PhaseStat(name="a", count=1, total_ns=5, max_ns=5), PhaseStat(name="a", count=2, total_ns=9, max_ns=7)]
    assert add_phases(rows) == [PhaseStat(name="a", count=3, total_ns=14, max_ns=7)]


def test_a_counter_in_each_name_keeps_the_causes_of_idle_time_few_and_their_sum_exact(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100_000).op("aten::mm", 0, 1)
    for number in range(300):
        builder.annotation(f"batch {number}", 10 * (number + 1), 5 + number % 5)
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json")).runs
    idle, (step,) = run.ranks[0].idle, run.ranks[0].steps
    assert idle is not None
    assert len(idle.causes) <= MOST_IDLE_CAUSES + len(CAUSES)
    assert OTHER_DETAILS in {row.detail for row in idle.causes}
    assert sum(row.total_ns for row in idle.causes) == step.exposed_ns.overhead
    batches = [row for row in idle.causes if row.detail.startswith("batch ") or row.detail == OTHER_DETAILS]
    assert sum(row.count for row in batches) == 300
    assert min(row.max_ns for row in batches if row.detail != OTHER_DETAILS) == 8_000
