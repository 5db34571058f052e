"""The pipeline schedules of `--pp-schedule`. Does not import torch."""

from typing import Final

from msgspec import Struct


class PipelineSchedule(Struct, frozen=True, kw_only=True):
    """One schedule of torch.distributed.pipelining."""

    torch_class: str
    stages_per_rank: int = 1
    mirrored: bool = False
    """Whether the second stages of the ranks are in reverse order, so that rank 0 has the first and the last."""
    is_naive: bool = False
    """Whether the batch is not divided: one rank computes at a time."""
    works_with_ddp: bool = False
    """Whether DDP can average the gradients: with the others it fails when it arranges its buckets anew."""

    def stages(self, rank: int, ranks: int) -> list[int]:
        if self.mirrored:
            return [rank, self.stages_per_rank * ranks - 1 - rank]
        return [rank + turn * ranks for turn in range(self.stages_per_rank)]


DEFAULT_PIPELINE: Final = "1f1b"

PIPELINES: Final = {
    "gpipe": PipelineSchedule(torch_class="ScheduleGPipe"),
    "1f1b": PipelineSchedule(torch_class="Schedule1F1B", works_with_ddp=True),
    "none": PipelineSchedule(torch_class="ScheduleGPipe", is_naive=True, works_with_ddp=True),
    "interleaved": PipelineSchedule(torch_class="ScheduleInterleaved1F1B", stages_per_rank=2),
    "zero-bubble": PipelineSchedule(torch_class="ScheduleInterleavedZeroBubble", stages_per_rank=2),
    "zbv": PipelineSchedule(torch_class="ScheduleZBVZeroBubble", stages_per_rank=2, mirrored=True),
}


def default_micro_batches(name: str, ranks: int) -> int:
    """Return the number of micro-batches for a pipeline of `ranks` and schedule `name`, without `--micro-batches`."""
    return 1 if PIPELINES[name].is_naive else 2 * ranks
