"""One training step of the real module, optimizer and sharding, as rank 0 of a fake process group.

No tensor has memory, and no message is sent: torch's own tracker counts what each rank would allocate. Modules are
sharded outside of the fake mode, because a mesh reads its coordinates. The first step is not counted: it fills caches
of DTensor's sharding, at global shapes, and makes the optimizer's state.

torch's `fully_shard` divides each parameter into as many tensors as there are ranks, and keeps one or two of them. On
1,024 ranks that is most of the time of a plan. Here it makes only the part that it asks for. The parts are the same;
where another version of torch divides otherwise, it takes the longer way. And fake tensors lack the values that decide
where tokens go: the same number of them is routed to each expert.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.pipelining.stage import _PipelineStageBase
from torch.distributed.tensor.parallel import loss_parallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from perfkit.options.mesh import lay_out
from perfkit.options.run import RunConfig
from perfkit.record.training.model_division import divide_model
from perfkit.record.training.strategies import STRATEGIES
from perfkit.record.training.trainer import checkpoint_activations
from perfkit.tools.plan.layout import SHARDED, Layout
from perfkit.tools.plan.traced.launch import TracedModel, TracedStep, TraceRequest
from perfkit.tools.plan.traced.subjects import GptSubject, OwnSubject, Subject
from perfkit_workloads.gpt_experts import Exchanged, MixtureOfExperts

Step = Callable[[Callable[[], None]], None]
"""Takes what is to be called before each micro-batch."""

_DEVICE: Final = "cpu"
"""Fake tensors of other devices need a torch that was built for them; shapes and bytes are the same."""


def trace_steps(request: TraceRequest) -> tuple[list[TracedStep], TracedModel | None]:
    """Return the bytes at the peak of one step for each layout of a request.

    Raises:
        UsageError: The user's module cannot be built, or is not one.
    """
    subject: Subject = GptSubject(request.gpt) if request.gpt is not None else OwnSubject(request.own)
    steps = []
    for layout, samples, stage in zip(request.layouts, request.samples, request.stages, strict=True):
        began = time.monotonic()
        held = _trace(subject, layout, request.precision, samples, stage)
        steps.append(TracedStep(held=held, seconds=time.monotonic() - began))
    return steps, subject.described


def _trace(subject: Subject, layout: Layout, precision: str, samples: int, stage: int) -> dict[str, int]:
    with _fake_ranks(layout) as mesh:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            module = subject.build(stage, layout.pp)
        if layout.checkpointing == "full":
            checkpoint_activations(subject.layers(module))
        with quick_sharding():
            wrapped = _share(subject, layout, precision, mesh, module)
        with mode:
            optimizer = subject.optimizer(wrapped)
            batch = subject.batch(samples, stage)
            step = _step(subject, layout, precision, stage, wrapped, optimizer, batch)
            with loss_parallel() if layout.loss_parallel else nullcontext(), even_experts():
                step(lambda: None)  # not tracked
                return _tracked(wrapped, optimizer, batch, step, sharded=layout.dp in SHARDED)


@contextmanager
def _fake_ranks(layout: Layout) -> Iterator[DeviceMesh]:
    """Make this process rank 0 of a fake process group with the mesh of a layout."""
    dist.init_process_group("fake", rank=0, world_size=layout.ranks, store=FakeStore())
    try:
        sizes = lay_out(layout.mesh_option, layout.ranks).sizes
        mesh = init_device_mesh(_DEVICE, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        for name in sizes:
            mesh.get_group(name)
        yield mesh
    finally:
        dist.destroy_process_group()


def _share(subject: Subject, layout: Layout, precision: str, mesh: DeviceMesh, module: nn.Module) -> nn.Module:
    """Divide and wrap a module as `perfkit run` does, but for DDP, whose reducer takes no fake tensors."""
    run = RunConfig(
        dp=layout.dp,
        mesh=layout.mesh_option,
        precision=precision,  # type: ignore[arg-type]  # `refine` has checked it
        sequence_parallel=layout.sequence_parallel,
        loss_parallel=layout.loss_parallel,
    )
    strategy = STRATEGIES.load(layout.dp)(run, mesh)
    if subject.workload is not None:
        divide_model(subject.workload, run, strategy, mesh, module)
    return strategy.wrap(module, subject.layers(module)) if layout.dp in SHARDED else module


def _step(
    subject: Subject,
    layout: Layout,
    precision: str,
    stage: int,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any,
) -> Step:
    dtype = None if precision == "float32" else getattr(torch, precision)

    def forward() -> tuple[Tensor, Tensor]:
        with torch.autocast(_DEVICE, dtype=dtype, enabled=dtype is not None):
            return subject.forward(module, batch, stage)

    def step(before_forward: Callable[[], None]) -> None:
        if layout.pp == 1:
            forward()[0].backward()  # type: ignore[no-untyped-call]
        else:
            with _reduced_at_the_end(module):
                _pipelined(forward, layout, stage, before_forward)
        optimizer.step()
        optimizer.zero_grad()

    return step


@contextmanager
def _reduced_at_the_end(module: nn.Module) -> Iterator[None]:
    """Let a sharded module keep parameters and gradients until all backward passes have ended, as torch's stages do."""
    if not isinstance(module, FSDPModule) or not hasattr(_PipelineStageBase, "perform_reduce_grad"):  # older torch
        yield
        return
    module.set_is_last_backward(False)
    module.set_reshard_after_backward(False)
    module.set_requires_gradient_sync(False)
    yield
    stage: Any = SimpleNamespace(submod=module)
    _PipelineStageBase.perform_reduce_grad(stage, 1)


def _pipelined(
    forward: Callable[[], tuple[Tensor, Tensor]], layout: Layout, stage: int, before_forward: Callable[[], None]
) -> None:
    """Compute all micro-batches in the order of 1F1B; their outputs are kept until the end, as torch's stages do."""
    flying: deque[Tensor] = deque()
    outputs = []
    for _ in range(layout.micro_batches):
        before_forward()
        begin, output = forward()
        flying.append(begin)
        outputs.append(output.detach())
        del begin, output
        if len(flying) == layout.pp - stage:
            _backward(flying.popleft())
    while flying:
        _backward(flying.popleft())


def _backward(output: Tensor) -> None:
    if output.dim():
        output.backward(torch.empty_like(output))  # type: ignore[no-untyped-call]
    else:
        output.backward()  # type: ignore[no-untyped-call]


def _tracked(
    module: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: Step, *, sharded: bool
) -> dict[str, int]:
    tensors = [
        tensor for tensor in (batch.values() if isinstance(batch, dict) else batch) if isinstance(tensor, Tensor)
    ]
    tracker: Any
    if sharded:
        tracker = FSDPMemTracker(module, optimizer)
        tracker.track_inputs(tuple(tensors))
    else:
        tracker = MemTracker()
        tracker.track_external(module, optimizer, *tensors)
    # The tracker refuses a second call of a module that it has seen, but for those inside of another.
    with tracker:
        step(lambda: tracker.memory_tracking.pop(module, None))
    found = tracker.get_tracker_snapshot("peak")
    held = next(iter(found.values()))
    return {str(getattr(kind, "name", kind)).rpartition(".")[2]: int(size) for kind, size in held.items() if size}


_DIVIDES: Final = "_chunk_with_empty"


class Parts:
    """The parts of a tensor along a dimension, as `torch.chunk` divides it; made when asked for."""

    def __init__(self, tensor: Tensor, count: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, count, dim

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Tensor:
        if not 0 <= place < self._count:
            raise IndexError(place)
        whole = self._tensor.size(self._dim)
        size = -(-whole // self._count)
        start = place * size
        if start >= whole:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(size, whole - start))


@contextmanager
def quick_sharding() -> Iterator[None]:
    """Divide parameters so while modules are sharded."""
    divide = getattr(_fsdp_param, _DIVIDES, None)
    if divide is None:
        yield
        return
    setattr(_fsdp_param, _DIVIDES, Parts)
    try:
        yield
    finally:
        setattr(_fsdp_param, _DIVIDES, divide)


@contextmanager
def even_experts() -> Iterator[None]:
    """Let every mixture of experts divide its tokens evenly."""
    even = {"count_tokens": lambda mixture, chosen: _even(chosen.numel(), mixture.count), "arrange": _arrange}
    own = {name: getattr(MixtureOfExperts, name) for name in even}
    for name, method in even.items():
        setattr(MixtureOfExperts, name, method)
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(MixtureOfExperts, name, method)


def _arrange(mixture: MixtureOfExperts, counts: Tensor, group: dist.ProcessGroup) -> Exchanged:
    """Return what is exchanged if every other rank sends as this one does."""
    ranks = dist.get_world_size(group)
    each = counts.tolist()
    own = len(each) // ranks
    sent = [sum(each[rank * own : (rank + 1) * own]) for rank in range(ranks)]
    received = [sent[dist.get_rank(group)]] * ranks
    order = torch.arange(sum(received))
    return Exchanged(sent, received, order, _even(len(order), mixture.count // ranks))


def _even(total: int, parts: int) -> Tensor:
    """Return `total` in parts that differ by one at most, as a tensor with values."""
    with torch._C._DisableTorchDispatch():
        return torch.tensor([total // parts + (part < total % parts) for part in range(parts)])
