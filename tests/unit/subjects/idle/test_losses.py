"""What is said of idle time: the largest cause, what of it is largest, what to do, and what that could save."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.pipeline.words import find_insights
from perfkit.records.common import Finding
from perfkit.records.per_rank.idle import CAUSES, Cause
from perfkit.records.per_run.whatif import PredictedSaving
from perfkit.records.rank import PhaseStat, RankReport
from perfkit.records.report import Insight
from perfkit.records.run import RunReport
from perfkit.records.samples import CodeLocation
from tests.support.reports.report_builders import MS, make_dimensions, make_foreign_run, make_operator
from tests.support.traces.idle_builders import STEPS, idle_rank, row
from tests.unit.report.content.test_memory_content import make_use


def insight(*ranks: RankReport, **changes: Any) -> Insight:
    found = find_insights([run(*ranks, **changes)], None).insights
    (one,) = [one for one in found if one.rule in ("host", "devices")]
    return one


def run(*ranks: RankReport, **changes: Any) -> RunReport:
    return make_foreign_run(ranks=list(ranks), world_size=len(ranks), **changes)


def test_waiting_for_the_device() -> None:
    item = row("synchronisation", "aten::item", 20, "train.py(5): log", count=40)
    found = insight(idle_rank(item, row("host_work", "forward", 5)))
    assert (found.row, found.sentence) == ("synchronisation", "Waiting for the device, 20.0 ms: aten::item")
    assert "read values (.item(), .cpu(), print)" in found.recommendation
    assert found.potential_saving_ns is None  # there is no graph to replay


def test_a_saving_is_no_more_than_the_row() -> None:
    """Without a synchronisation, the host would have the next work ready, too."""
    item = row("synchronisation", "aten::item", 20)
    for predicted_ns, saving_ns, by in ((15 * MS, 15 * MS, "sync=removed"), (30 * MS, 20 * MS, None)):
        predicted = [PredictedSaving(change="sync=removed", saving_ns=predicted_ns)]
        found = insight(idle_rank(item), predicted_savings=predicted)
        assert (found.potential_saving_ns, found.predicted_for) == (saving_ns, by)


@pytest.mark.parametrize(("count", "is_first"), [(1, True), (STEPS, False), (10 * STEPS, False)])
def test_an_operator_that_pauses_once_may_be_its_first_call(count: int, is_first: bool) -> None:
    found = insight(idle_rank(row("host_work", "aten::ones", 20, count=count)))
    assert found.recommendation.startswith("record more warm-up steps if") is is_first
    assert found.recommendation.endswith("tensors on the CPU, or many small ones")


def test_launch_bound() -> None:
    rows = [row("launch_bound", f"aten::op{number}", 3, count=400) for number in range(10)]
    found = insight(idle_rank(*rows, kernels=1_000, short_kernels=900))
    assert found.sentence == "Launch-bound"
    assert "CUDA graphs" in found.recommendation
    assert found.potential_saving_ns == pytest.approx(30 * MS)
    assert found.evidence["short_kernels_share"] == 0.9
    own = insight(idle_rank(*rows, kernels=1_000), config={"compile": False})
    assert "--compile" in own.recommendation
    split = insight(
        idle_rank(*rows, kernels=1_000), config={"compile": False}, dimensions=make_dimensions(("tp", 1.0, 1.0))
    )
    assert "--compile" not in split.recommendation


LAUNCHING = row("launch_bound", "aten::op", 30, count=400)


def test_no_pause_is_replayed_for_fewer_launches() -> None:
    """The operators that launch are work of the host, which `idle:launch_bound=0` leaves."""
    predicted = [PredictedSaving(change="idle:launch_bound=0", saving_ns=1 * MS)]
    found = insight(idle_rank(LAUNCHING), predicted_savings=predicted)
    assert found.potential_saving_ns == pytest.approx(30 * MS)
    assert found.predicted_for is None


@pytest.mark.parametrize("where", ["operators", "phases", "idle"])
def test_what_is_compiled_is_not_told_to_be(where: str) -> None:
    assert "torch.compile" in insight(idle_rank(LAUNCHING)).recommendation
    name = "Torch-Compiled Region: 0/0"
    changes: dict[str, Any] = {
        "operators": {"operators": [make_operator("triton_poi_fused_add_0")]},
        "phases": {"phases": [PhaseStat(name=name, count=4, total_ns=MS, max_ns=MS)]},
        "idle": {"idle": idle_rank(replace(LAUNCHING, context=name)).idle},
    }
    found = insight(replace(idle_rank(LAUNCHING), **changes[where]))
    assert found.recommendation == "use a larger batch or CUDA graphs: fewer launches for the same work"


@pytest.mark.parametrize(
    ("dp", "advice"), [("ddp", "use --compile or a larger batch"), ("zero3", "use a larger batch or CUDA graphs")]
)
def test_nobody_is_told_to_compile_what_perfkit_does_not(dp: str, advice: str) -> None:
    found = insight(idle_rank(LAUNCHING), config={"compile": False, "dp": dp})
    assert found.recommendation == f"{advice}: fewer launches for the same work"


def test_graphs_that_a_run_has_are_not_advised() -> None:
    graphs = Finding(code="graphs_hide_operators", severity="info", message="")
    assert "CUDA graphs for more of the step" in insight(idle_rank(LAUNCHING), findings=[graphs]).recommendation


@pytest.mark.parametrize(("used_gb", "larger"), [(40, True), (71, True), (73, False)])
def test_no_larger_batch_where_memory_is_full(used_gb: int, larger: bool) -> None:
    found = insight(replace(idle_rank(LAUNCHING), memory=[make_use(used_gb * 10**9)]))
    assert ("larger batch" in found.recommendation) is larger


@pytest.mark.parametrize(("share", "fused"), [(0.6, True), (0.4, False)])
def test_an_optimizer_is_fused_only_if_most_launches_are_its(share: float, fused: bool) -> None:
    optimizer = row("launch_bound", "aten::add_", 20 * share, "Optimizer.step#Adam.step")
    found = insight(idle_rank(optimizer, row("launch_bound", "aten::mm", 20 * (1 - share), "forward")))
    assert ("fused optimizer" in found.recommendation) is fused


def test_allocation() -> None:
    malloc, free = row("allocation", "cudaMalloc", 8), row("allocation", "cudaFree", 12)
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in insight(idle_rank(malloc, free)).recommendation
    only = insight(idle_rank(row("allocation", "cudaMalloc", 20))).recommendation
    assert "expandable" not in only
    assert "warm-up" in only
    hip = [row("allocation", "hipMalloc", 8), row("allocation", "hipFree", 12)]
    assert "PYTORCH_HIP_ALLOC_CONF" in insight(idle_rank(*hip)).recommendation
    intel = [row("allocation", "zeMemAllocDevice", 8), row("allocation", "zeMemFree", 12)]
    assert "expandable" not in insight(idle_rank(*intel)).recommendation  # its allocator has no such option


@pytest.mark.parametrize(("call", "named"), [("torch.cuda.empty_cache", True), ("self.mlp", False)])
def test_a_program_that_empties_the_cache_is_told_so(call: str, named: bool) -> None:
    code = CodeLocation(function="step", file="train.py", line=12, call=call, ns=12)
    malloc, free = row("allocation", "cudaMalloc", 8), replace(row("allocation", "cudaFree", 12), code=code)
    assert ("empty_cache()" in insight(idle_rank(malloc, free)).recommendation) is named


@pytest.mark.parametrize(("config", "advice"), [({}, "inspect the gaps"), ({"compile": False}, "--pyinstrument")])
def test_nothing_is_promised_where_no_cause_is_known(config: dict[str, Any], advice: str) -> None:
    rank = idle_rank(row("host_work", "f", 20))
    found = insight(replace(rank, device="cpu", idle=replace(rank.idle, causes=[])), config=config)
    assert advice in found.recommendation
    assert found.only_finds_out


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_a_remedy(cause: Cause) -> None:
    found = insight(idle_rank(row(cause, "f", 20)))
    assert found.row == cause
    assert found.recommendation


def test_names_are_escaped() -> None:
    found = insight(idle_rank(row("host_work", "f\x1b[31m", 20, "g\x1b")))
    assert "\x1b" not in found.sentence + found.recommendation
