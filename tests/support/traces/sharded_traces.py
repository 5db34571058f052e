"""Traces of sharded training on a device, with every collective's issue, start and end given."""

from pathlib import Path
from typing import Self

from perfkit.engine.trace_summary import TraceSummary
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.per_rank.sharding import ParameterGathers
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

COMPUTE_STREAM = 7
GATHER_STREAM = 20
REDUCE_STREAM = 24
AUTOGRAD_THREAD = 2
COMPUTE_THREAD = 3
STEP_US = 1000
ELEMENTS = 1000
"""float32 elements of what all ranks gather."""


class ShardedTrace:
    """Steps of 1 ms of a rank of FSDP2: passes on the host, kernels on the device; times in microseconds."""

    def __init__(self, rank: int = 0, steps: int = 1) -> None:
        self._builder = TraceBuilder(rank, 2)
        for step in range(steps):
            self._builder.step(step, STEP_US * step, STEP_US)
        self._correlation = 0

    def forward(self, start: int, dur: int) -> Self:
        """Add perfkit's annotation of a forward pass."""
        self._builder.annotation("perfkit.forward", start, dur)
        return self

    def backward(self, start: int, dur: int) -> Self:
        """Add perfkit's annotation of a backward pass."""
        self._builder.annotation("perfkit.backward", start, dur)
        return self

    def compute(self, launched: int, start: int, dur: int) -> Self:
        """Add a kernel on the stream of compute."""
        # On a thread of its own, so that it may be launched at the instant of any collective.
        return self._kernel("ampere_sgemm_128x64_tn", launched, start, dur, COMPUTE_STREAM, COMPUTE_THREAD)

    def gather(self, layer: str | None, launched: int, start: int, dur: int, *, thread: int = 1) -> Self:
        """Add the all-gather of a layer's parameters; None is the root module."""
        named = "FSDP::all_gather" + (f" ({layer})" if layer else "")
        return self._collective(named, "_allgather_base", "AllGather_RING_LL", launched, start, dur, thread)

    def reduce(self, layer: str | None, launched: int, start: int, dur: int, *, thread: int = AUTOGRAD_THREAD) -> Self:
        """Add the reduce-scatter of a layer's gradients."""
        named = "FSDP::post_backward_reduce" + (f" ({layer})" if layer else "")
        return self._collective(
            named, "_reduce_scatter_base", "ReduceScatter_Sum_f32", launched, start, dur, thread, REDUCE_STREAM
        )

    def _collective(
        self,
        annotation: str,
        operator: str,
        kernel: str,
        launched: int,
        start: int,
        dur: int,
        thread: int,
        stream: int = GATHER_STREAM,
    ) -> Self:
        shard, whole = ELEMENTS // 2, ELEMENTS
        given, made = (shard, whole) if operator.startswith("_allgather") else (whole, shard)
        self._builder.annotation(annotation, launched, 1, tid=thread)
        self._builder.record_param_comms(
            operator, launched, 1, tid=thread, group="1", in_elements=given, out_elements=made
        )
        return self._kernel(f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage)", launched, start, dur, stream, thread)

    def _kernel(self, name: str, launched: int, start: int, dur: int, stream: int, thread: int = 1) -> Self:
        self._correlation += 1
        self._builder.launch(self._correlation, launched, 1, thread)
        self._builder.kernel(name, start, dur, self._correlation, stream)
        return self

    def write(self, path: Path) -> Path:
        """Write the trace, and return its path."""
        return self._builder.write(path)

    def summary(self, folder: Path) -> TraceSummary:
        """Return the analysis of the trace, written to a folder."""
        return summarize_trace(read_trace(self.write(folder / "rank0.json")), "rank0.json")

    def gathers(self, folder: Path) -> dict[str | None, ParameterGathers]:
        """Return the all-gathers by layer, if each layer gathers in one phase only."""
        sharded = self.summary(folder).sharded_parameters
        assert sharded is not None
        rows = {row.layer: row for row in sharded.gathers}
        assert len(rows) == len(sharded.gathers)
        return rows
