"""Pipeline parallelism: the stages of this rank, and a step of all micro-batches through them."""

import hashlib
from collections.abc import Callable, Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import schedules

from perfkit.errors import RunError
from perfkit.options.mesh import MeshLayout
from perfkit.options.run import RunConfig
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.recording.manifest_writer import checksum_of
from perfkit.record.recording.recording import Recording
from perfkit.record.training.parameters import local_part
from perfkit.record.training.pipeline_schedules import DEFAULT_PIPELINE, PIPELINES, default_micro_batches
from perfkit.record.training.pipeline_stage import AnnotatedStage, MessageLog
from perfkit.records.trace_header import RecordedPipeline, RecordedStage
from perfkit_workloads.parallel import PipelineParallel

Batch = Mapping[str, Tensor]


class Pipeline:
    """One rank's part of a pipeline."""

    def __init__(
        self,
        workload: PipelineParallel,
        run: RunConfig,
        layout: MeshLayout,
        mesh: DeviceMesh,
        model: nn.Module,
        layers: Callable[[nn.Module], list[nn.Module]],
    ) -> None:
        self._workload = workload
        self._run = run
        self._mesh = mesh
        self._name = run.pp_schedule or DEFAULT_PIPELINE
        self._kind = PIPELINES[self._name]
        size = layout.size("pp")
        self._count = size * self._kind.stages_per_rank
        self._indices = self._kind.stages(mesh.get_local_rank("pp"), size)
        self._micro_batches = run.micro_batches or default_micro_batches(self._name, size)
        self.modules = [workload.make_stage(model, index, self._count) for index in self._indices]
        """The stages of this rank, bare."""
        ends = [[line[0], line[-1]] for line in layout.groups("pp")]
        made: tuple[dist.ProcessGroup | None, object] = dist.new_subgroups_by_enumeration(  # type: ignore[no-untyped-call]
            ends, timeout=run.timeout_delta, group_desc="mesh_pp_ends"
        )
        self._ends = made[0]
        """The first and last rank of this rank's pipeline, if it is one of them."""
        self._recording: Recording | None = None
        self._stages: list[AnnotatedStage] = []
        self._messages = MessageLog()
        self._own = [
            RecordedStage(index=index, layers=len(layers(module)))
            for index, module in zip(self._indices, self.modules, strict=True)
        ]

    @property
    def has_last(self) -> bool:
        return self._count - 1 in self._indices

    def tied_copies(self) -> list[nn.Parameter]:
        """Return the parameters of the last stage that are copies of the first stage's."""
        return self._workload.tied_parameters(self.modules[-1]) if self.has_last else []

    def connect(self, wrapped: list[nn.Module]) -> None:
        device = next(self.modules[0].parameters()).device
        group = self._mesh.get_group("pp")
        self._stages = [
            AnnotatedStage(module, index, self._count, device, group=group)
            for module, index in zip(wrapped, self._indices, strict=True)
        ]
        made = getattr(schedules, self._kind.torch_class)
        stages = self._stages if self._kind.stages_per_rank > 1 else self._stages[0]
        self._schedule = made(stages, n_microbatches=self._micro_batches, loss_fn=self._loss)

    def compute(self, batch: Batch, recording: Recording) -> Tensor | None:
        """Compute the gradients of one batch; return its loss, which only ranks with the last stage know."""
        self._recording = recording
        self._messages.clear()
        for stage in self._stages:
            stage.recording, stage.log = recording, self._messages if recording.recording else None
        inputs, targets = self._workload.split_batch(batch)
        losses: list[Tensor] = []
        given = (inputs,) if 0 in self._indices else ()
        self._schedule.step(*given, **({"target": targets, "losses": losses} if self.has_last else {}))
        recording.pipeline = RecordedPipeline(
            schedule=self._name,
            stages=self._count,
            micro_batches=self._micro_batches,
            own=self._own,
            messages=self._messages.taken(),
        )
        with recording.phase("backward"):
            self._add_tied_gradients()
        return torch.stack([loss.detach() for loss in losses]).mean() if losses else None

    def _loss(self, output: Tensor, targets: Tensor) -> Tensor:
        with self._stages[-1].loss():
            return self._workload.output_loss(output, targets)

    def _add_tied_gradients(self) -> None:
        """Add up the gradients of the parameters that the first and the last stage share."""
        stages = zip(self._indices, self.modules, strict=True)
        ends = [module for index, module in stages if index in (0, self._count - 1)]
        tied = [
            [
                local_part(parameter.grad)
                for parameter in self._workload.tied_parameters(module)
                if parameter.grad is not None
            ]
            for module in ends
        ]
        if len(tied) == 2:
            for first, last in zip(*tied, strict=True):
                first.add_(last)
                last.copy_(first)
        elif tied:
            for gradient in tied[0]:
                dist.all_reduce(gradient, group=self._ends)

    def checksum(self, ranks: ProcessRankGroup, tensors: Iterator[Tensor]) -> str:
        """Return the SHA-256 of all stages' checksums; called by all ranks."""
        found = ranks.all_gather((self._mesh.get_local_rank("pp"), checksum_of(tensors)))
        of_stage = dict(reversed(found))
        for rank, (stage, checksum) in enumerate(found):
            if checksum != of_stage[stage]:
                raise RunError(f"the parameters after the last step of rank {rank} differ from others of its stage")
        return hashlib.sha256("".join(of_stage[stage] for stage in sorted(of_stage)).encode()).hexdigest()
