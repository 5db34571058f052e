"""Kernels that count as compute but may be communication: found where they are, silent where they are not."""

from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from tests.support.traces.trace_builder import TraceBuilder

NCCL = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_xmma_gemm_bf16"
EXCHANGE = "void acme::exchange_tokens<8>(int*)"


def messages(builder: TraceBuilder, tmp_path: Path) -> list[str]:
    return found(run_of(builder, tmp_path))


def run_of(builder: TraceBuilder, tmp_path: Path) -> RunReport:
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json")).runs
    return run


def found(run: RunReport) -> list[str]:
    return [finding.message for finding in run.findings if finding.code == "possible_communication"]


def trace(world_size: int | None = 2) -> TraceBuilder:
    return TraceBuilder(world_size=world_size).step(0, 0, 200).kernel(GEMM, 0, 100, stream=7)


def test_beside_communication_only(tmp_path: Path) -> None:
    builder = trace().kernel(NCCL, 100, 20, stream=20).kernel(EXCHANGE, 120, 30, stream=20)
    (message,) = messages(builder, tmp_path)
    assert message.startswith("1 kernel acme::exchange_tokens (30.0 µs, 20.0 % of kernel time) counts as compute")
    assert "only communication shares the stream" in message
    assert "--kernel-rules" in message


def test_on_a_stream_of_its_own_beside_compute(tmp_path: Path) -> None:
    builder = trace().kernel(EXCHANGE, 20, 30, stream=20).kernel(EXCHANGE, 60, 10, stream=20)
    (message,) = messages(builder, tmp_path)
    assert "2 kernels acme::exchange_tokens" in message
    assert "runs beside the compute of others" in message


@pytest.mark.parametrize(
    "builder",
    [
        trace(world_size=1).kernel(EXCHANGE, 20, 30, stream=20),  # one rank has nobody to talk to
        trace().kernel(EXCHANGE, 120, 30, stream=20),  # nothing runs beside it
        trace().kernel(EXCHANGE, 120, 30, stream=7),  # on the stream that computes
        trace().kernel(NCCL, 100, 20, stream=7).kernel(EXCHANGE, 120, 30, stream=7),  # one stream for everything
        trace().kernel(EXCHANGE, 20, 30, stream=20).kernel("void softmax_fwd(x)", 60, 20, stream=20),
        trace().kernel("triton_red_fused_all_reduce_sum_0", 20, 30, stream=20),
        trace().kernel("void at::native::elementwise_kernel<4>(x)", 20, 30, stream=20),
        trace().kernel(EXCHANGE, 20, "0.5", stream=20),  # too short to matter
        trace().op("aten::mystery", 5, 10).launch(3, 6, 1).kernel(EXCHANGE, 20, 30, 3, stream=20),
        TraceBuilder(world_size=2).step(0, 0, 200).kernel(EXCHANGE, 0, 90, stream=7).kernel(NCCL, 10, 50, stream=20),
        trace().kernel(NCCL, 20, 30, stream=20).memcpy(60, 20, stream=20),
    ],
)
def test_silent_where_it_would_be_false(builder: TraceBuilder, tmp_path: Path) -> None:
    assert messages(builder, tmp_path) == []


def test_a_rule_settles_it(tmp_path: Path) -> None:
    path = trace().kernel(EXCHANGE, 20, 30, stream=20).write(tmp_path / "rank0.json")
    for kind in ("compute", "communication"):
        rules = [perfkit.KernelRule("acme::", kind)]
        assert found(perfkit.analyze(path, kernel_rules=rules).runs[0]) == []


@pytest.mark.parametrize("run", ["gpu-dlrm-2of128", "mi300-resnet-ddp-1of8", "nccl-metadata-1of2"])
def test_silent_on_real_traces(run: str) -> None:
    report = perfkit.analyze(Path(__file__).parents[3] / "data" / "traces" / run)
    assert [found(one) for one in report.runs] == [[]]
