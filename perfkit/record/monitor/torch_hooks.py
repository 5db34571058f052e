"""Hooks in torch that tell the monitor where the host's time goes: loaders, collectives, backward passes, optimizers.

They only read clocks. Under torch.compile they are not traced: what is compiled runs as without them.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from perfkit.record.autograd_engine import hook_engine
from perfkit.record.loading_mark import while_loading
from perfkit.record.monitor.backward_loss import BackwardLoss
from perfkit.record.monitor.step_times import BACKWARD, COLLECTIVE, DATA, OPTIMIZER, StepTimes
from perfkit.record.patching import Function, wrap_function

_compiling: Final = torch.compiler.is_compiling
_AVAILABLE: Final = dist.is_available()
_queue_callback: Final = torch.autograd.Variable._execution_engine.queue_callback
_Undo = Callable[[], None]


class MonitorHooks:
    """Hooks of this process, while installed."""

    def __init__(self, times: StepTimes, losses: BackwardLoss) -> None:
        self._times = times
        self._losses = losses
        self._undo: list[_Undo] = []

    def install(self) -> None:
        """Install the hooks. Those that a program installs later lie around them, and see them as part of torch."""
        times = self._times
        self._undo.append(wrap_function(dataloader._BaseDataLoaderIter, "__next__", _timed(DATA, times)))
        self._undo.append(while_loading(partial(times.begin, DATA), partial(times.end, DATA)))
        if dist.is_available():
            self._undo += [wrap_function(owner, name, _timed(COLLECTIVE, times)) for owner, name in _waits()]
        self._undo += _around_optimizer(times)
        self._undo += [_around_backward(times, self._losses), _before_scaling(times, self._losses)]

    def remove(self) -> None:
        """Remove the hooks; where the program has wrapped one, it stays, and is idle."""
        while self._undo:
            self._undo.pop()()


def _waits() -> list[tuple[Any, str]]:
    """Return the methods in which the host waits for collectives.

    DDP's own wait in C++: for the buffers of its model, and in the second step for the order of its buckets.
    """
    methods = [
        (dist.Work, "wait"),
        (getattr(dist, "Reducer", None), "_rebuild_buckets"),
        (nn.parallel.DistributedDataParallel, "_sync_buffers"),
    ]
    return [(owner, name) for owner, name in methods if hasattr(owner, name)]


def _timed(span: int, times: StepTimes) -> Callable[[Function], Function]:
    def around(function: Function) -> Function:
        def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not times.begin(span):
                return function(self, *args, **kwargs)
            try:
                return function(self, *args, **kwargs)
            finally:
                times.end(span)

        return hooked

    return around


def _around_optimizer(times: StepTimes) -> list[_Undo]:
    def begin(*_: Any) -> None:  # whatever else is returned replaces the arguments of the step
        times.begin(OPTIMIZER)

    end = partial(times.end, OPTIMIZER)
    return [register_optimizer_step_pre_hook(begin).remove, register_optimizer_step_post_hook(end).remove]


def _around_backward(times: StepTimes, losses: BackwardLoss) -> _Undo:
    def wrap(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            if not times.begin(BACKWARD):
                return backward(*args, **kwargs)
            loss = args[0] if args else kwargs.get("tensors")
            if isinstance(loss, (list, tuple)) and len(loss) == 1:
                loss = loss[0]
            end = _EndOfGradients(times, loss) if _has_peers() else None
            if losses.wanted and times.counts:
                losses.note(loss)
            try:
                return backward(*args, **kwargs)
            finally:
                if end is not None:
                    end.note()
                times.end(BACKWARD)

        return hooked

    return hook_engine(wrap, accumulates=True)


def _before_scaling(times: StepTimes, losses: BackwardLoss) -> _Undo:
    """Note scaled losses, also by scalers with their own `scale`, such as FSDP's, from their first object on.

    FSDP's is not imported for it: that takes long.
    """
    undo: list[_Undo] = []
    seen: set[type] = set()

    def watch(scaler: type[Any]) -> None:
        for owner in set(scaler.__mro__) - seen:
            seen.add(owner)
            if "scale" in vars(owner):
                undo.append(wrap_function(owner, "scale", _noting_scaled(times, losses)))

    def around_init(init: Function) -> Function:
        def hooked(self: Any, *args: Any, **kwargs: Any) -> None:
            if not (_compiling() or times.is_stopped):
                with suppress(Exception):  # the outermost boundary: beyond it is the program
                    watch(type(self))
            init(self, *args, **kwargs)

        return hooked

    watch(torch.amp.GradScaler)
    undo.append(wrap_function(torch.amp.GradScaler, "__init__", around_init))

    def remove() -> None:
        while undo:
            undo.pop()()

    return remove


def _noting_scaled(times: StepTimes, losses: BackwardLoss) -> Callable[[Function], Function]:
    def around(scale: Function) -> Function:
        def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not (_compiling() or times.is_stopped) and times.counts and self.is_enabled():
                losses.scaled()
            return scale(self, *args, **kwargs)

        return hooked

    return around


def _has_peers() -> bool:
    world = dist.GroupMember.WORLD if _AVAILABLE else None
    return world is not None and world.size() > 1


class _EndOfGradients:
    """Measures what a backward pass waits for once it has computed the last gradient: their reduction.

    DDP and FSDP wait for it in callbacks at the end of the pass. Those run in the order in which they were queued, and
    a callback that is queued when the pass begins runs first.
    """

    __slots__ = ("_ends_ns", "_handle", "_times")

    def __init__(self, times: StepTimes, loss: Any) -> None:
        self._times = times
        self._ends_ns: tuple[int, int] | None = None
        self._handle: Any = None
        times.may_wait()
        # `suppress` calls three functions of Python: with cold caches it takes as long as what is in it.
        try:
            first = loss[0] if isinstance(loss, (list, tuple)) and loss else loss  # an iterator is the program's
            if isinstance(first, Tensor):
                with torch._C.DisableTorchFunction():  # neither a subclass nor a mode of the program's is to see it
                    if not first.is_leaf:
                        self._handle = first.register_hook(self._on_first_gradient)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001, S110  the outermost boundary: beyond it is the program's backward pass
            pass

    def _on_first_gradient(self, _gradient: Tensor) -> None:
        try:  # noqa: SIM105
            _queue_callback(self._on_last_gradient)
        except Exception:  # noqa: BLE001, S110  as above
            pass

    def _on_last_gradient(self) -> None:
        self._ends_ns = perf_counter_ns(), self._times.total(COLLECTIVE)

    def note(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        if self._ends_ns is not None:
            ended_ns, waited_ns = self._ends_ns
            seen_ns = self._times.total(COLLECTIVE) - waited_ns  # in `Work.wait`, which is counted already
            self._times.add(COLLECTIVE, max(0, perf_counter_ns() - ended_ns - seen_ns))
