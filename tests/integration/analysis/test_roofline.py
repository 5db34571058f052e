"""FLOP of real traces, against torch's own counter; and a product whose size and time are known."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

import perfkit
from perfkit.record.distributed.topology import name_device
from perfkit.records.per_rank.operator_work import MATRIX_KINDS, RankWork
from perfkit.records.roofline import DevicePeaks
from perfkit.storage.device_table_file import write_device_row
from perfkit_workloads import WORKLOADS
from tests.support.processes.launching import PYTHON, execute

pytestmark = pytest.mark.slow
_ATEN = torch.ops.aten


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(gradient, query, key, value))  # type: ignore[no-untyped-call]


_CPU_ATTENTION = {
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _attention,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""torch counts attention on devices only; its formulas are the same for the CPU."""


def counted(step: Callable[[], object]) -> int:
    """Return the operations of a step by torch's own counter."""
    with FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION) as counter:
        step()
    return int(counter.get_total_flops())


def traced(step: Callable[[], object], path: Path, *, with_stack: bool = False) -> RankWork:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=with_stack) as recorded:
        step()
    recorded.export_chrome_trace(str(path))
    (rank,) = perfkit.analyze(path, cache=False).runs[0].ranks
    work = rank.operator_work
    assert work is not None
    computing = sum(row.total_ns for row in rank.operators if row.category == "compute")
    listed = sum(row.total_ns for row in work.operators) + sum(row.total_ns for row in work.unmodelled)
    assert listed == work.total_ns == computing
    return work


def matrix_flops(work: RankWork) -> int:
    return sum(row.flops for row in work.operators if row.kind in MATRIX_KINDS)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpt", {"layers": 2, "width": 32, "heads": 2, "block": 16}),
        ("transformer", {"d_model": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feedforward": 64}),
    ],
)
def test_workloads_need_what_torch_counts(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    workload_type = WORKLOADS.load(name)
    workload = workload_type(workload_type.Config(**options))
    model = workload.build()
    batch = {k: torch.from_numpy(a) for k, a in workload.generate(workload.data_spec(0), 0, 2).items()}

    def step() -> None:
        workload.loss(model, batch).backward()  # type: ignore[no-untyped-call]

    expected = counted(step)
    work = traced(step, tmp_path / "trace.json")
    assert matrix_flops(work) == expected > 0
    modelled_ns = sum(row.total_ns for row in work.operators)
    assert 0 < modelled_ns <= work.total_ns


def test_convolutions_need_what_torch_counts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 12, (3, 5), dilation=(1, 2)),
        torch.nn.ConvTranspose2d(12, 6, 3, stride=2, output_padding=1),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(5),
    )
    image = torch.randn(4, 3, 20, 24)
    net(image)

    def step() -> None:
        net(image).square().mean().backward()

    expected = counted(step)
    work = traced(step, tmp_path / "trace.json")
    assert matrix_flops(work) == expected
    kinds = {row.kind for row in work.operators}
    assert kinds >= {"convolution", "gemm", "normalisation", "elementwise", "reduction"}


def test_attention_with_and_without_a_fused_operator(tmp_path: Path) -> None:
    query, key, value = (torch.randn(2, 3, 10, 16, requires_grad=True) for _ in range(3))
    backend = torch.nn.attention.SDPBackend
    for chosen, kinds in ((backend.FLASH_ATTENTION, {"attention"}), (backend.MATH, {"gemm"})):

        def step(chosen: Any = chosen) -> None:
            with torch.nn.attention.sdpa_kernel(chosen):
                functional.scaled_dot_product_attention(query, key, value).sum().backward()  # type: ignore[no-untyped-call]

        expected = counted(step)
        work = traced(step, tmp_path / f"{chosen.name}.json")
        assert matrix_flops(work) == expected
        assert {row.kind for row in work.operators if row.kind in MATRIX_KINDS} == kinds


def test_modules_need_what_torch_counts_forward_and_backward(tmp_path: Path) -> None:
    net = torch.nn.Sequential(
        torch.nn.Linear(30, 50), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(50, 20), torch.nn.LayerNorm(20))
    )
    batch = torch.randn(8, 30)

    def step() -> None:
        net(batch).sum().backward()

    expected = counted(step)
    modules = {tuple(row.path): row for row in traced(step, tmp_path / "trace.json", with_stack=True).modules}
    flops = {path: sum(row.flops.values()) for path, row in modules.items()}
    first, second = 2 * 8 * 30 * 50, 2 * 8 * 50 * 20
    # The first layer's input needs no gradient.
    assert expected == 2 * first + 3 * second
    assert flops[("Sequential",)] == expected
    assert flops["Sequential", "Linear"] == 2 * first
    assert flops["Sequential", "Sequential"] == flops["Sequential", "Sequential", "Linear"] == 3 * second
    assert flops["Sequential", "ReLU"] == 0
    assert modules["Sequential", "Sequential"].total_ns >= modules["Sequential", "Sequential", "Linear"].total_ns


def test_a_known_product(tmp_path: Path) -> None:
    left, right = torch.randn(300, 200), torch.randn(200, 100)
    path = tmp_path / "trace.json"
    work = traced(lambda: [torch.mm(left, right) for _ in range(3)], path)
    (product,) = [row for row in work.operators if row.kind == "gemm"]
    assert (product.operator, product.shapes, product.dtype) == ("aten::mm", "300×200, 200×100", "float32")
    assert (product.count, product.flops) == (3, 3 * 2 * 300 * 200 * 100)
    assert product.bytes == 3 * 4 * (300 * 200 + 200 * 100 + 300 * 100)
    events = json.loads(path.read_text())["traceEvents"]
    products = [event for event in events if event.get("name") == "aten::mm"]
    # What it calls (aten::resolve_conj) is part of it: the time is that of the whole operator.
    assert product.total_ns == sum(round(event["dur"] * 1000) for event in products)
    (row,) = [row for row in perfkit.analyze(path).runs[0].roofline.rows if row.kind == "gemm"]  # type: ignore[union-attr]
    assert row.flops_per_s == product.flops / product.total_ns * 1e9


def test_without_shapes_there_is_no_roofline(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        torch.mm(torch.randn(8, 8), torch.randn(8, 8))
    recorded.export_chrome_trace(str(path))
    run = perfkit.analyze(path, cache=False).runs[0]
    assert run.ranks[0].operator_work is None
    assert run.roofline is None


def test_a_run_and_its_analysis_share_the_users_table(tmp_path: Path) -> None:
    name = name_device(torch.device("cpu"))
    row = DevicePeaks(name=name, tflops={"float32": 0.05}, bandwidth_gb_per_s=10, threads=1, source="a test")
    write_device_row(tmp_path / "own.toml", row)
    options = ["--threads", "1", "--record-shapes", "--with-stack", "--trace-dir", str(tmp_path / "traces")]
    command = [*PYTHON, "run", "gpt", *options, "--batch-size", "4", "--samples", "256", "--device-table"]
    done = execute([*command, str(tmp_path / "own.toml")])
    assert done.returncode == 0, done.stderr
    (run,) = perfkit.analyze(tmp_path / "traces", device_table=tmp_path / "own.toml", cache=False).runs
    assert run.throughput is not None
    assert run.throughput.mfu is not None
    assert run.throughput.mfu == pytest.approx((run.throughput.flops_per_s or 0) / 0.05e12)
    assert run.roofline is not None
    assert run.roofline.peaks == row
    assert all(one.bound for one in run.roofline.rows)
    # 4 sequences of 64 tokens: what the run says a token needs, within what its formula leaves out or adds.
    (model,) = [one for one in run.roofline.modules if one.path[-1] == "Decoder"]
    steps = run.roofline.rank_steps
    per_token = (run.throughput.flops_per_s or 0) / (run.throughput.tokens_per_s or 1)
    assert model.flops / steps / (4 * 64) == pytest.approx(per_token, rel=0.1)
    refused = execute([*command, str(tmp_path / "none.toml")])
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--device-table" in refused.stderr
