"""Communication between ranks besides gradients: objects, outcomes and barriers.

`RankGroup` is what a recording needs. `ProcessRankGroup` is the one of a default process group, with
its own collectives; `perfkit.record.script.coordination.ScriptRankGroup` is the one of a script that must not see
any collective but its own.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist

from perfkit.accelerators import backend_on, device_backends
from perfkit.errors import PerfkitError
from perfkit.record.distributed.store_barrier import PeerFailedError, StoreBarrier

T = TypeVar("T")


class RankGroup(Protocol):
    """The ranks of a run, as a recording sees them."""

    current_activity: str
    """What the ranks are doing, for error messages."""

    @property
    def rank(self) -> int:
        """This rank."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    def barrier(self) -> None:
        """Wait for the other ranks."""

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on this rank and return its result, once it has succeeded on all ranks that are waited for."""


class ProcessRankGroup:
    """The ranks of the default process group; a single rank if there is none.

    With gloo it communicates in a separate group, which `close` destroys. The default group lives as long as the
    user's model, and a gloo thread that releases a Python tensor while the interpreter shuts down aborts the process.

    Args:
        timeout: Limit of each exchange; None is torch's own.
        barrier: How the ranks wait for work of unlimited duration; without it every wait is an exchange.
    """

    def __init__(
        self, device: torch.device, timeout: timedelta | None = None, barrier: StoreBarrier | None = None
    ) -> None:
        self.current_activity = "the preparation"
        self._store_barrier = barrier
        self._distributed = dist.is_available() and dist.is_initialized()
        self.rank: int = dist.get_rank() if self._distributed else 0
        self.world_size: int = dist.get_world_size() if self._distributed else 1
        backend = backend_of(device.type)
        self._device_ids = None
        if backend in device_backends() and device.type != "cpu":
            current = torch.get_device_module(device.type).current_device
            self._device_ids = [int(current()) if device.index is None else device.index]
        self._owns_group = backend == "gloo"
        self._group = dist.new_group(backend="gloo", timeout=timeout) if self._owns_group else None

    def close(self) -> None:
        """Destroy the group's own process group; this object cannot be used afterwards."""
        if self._owns_group:
            dist.destroy_process_group(self._group)
            self._group = None

    def barrier(self) -> None:
        if self._distributed:
            dist.barrier(self._group, device_ids=self._device_ids)

    def all_gather(self, value: T) -> list[T]:
        """Return every rank's `value`, ordered by rank."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, self._group)
        return values

    def broadcast(self, value: T | None) -> T:
        if self.world_size == 1:
            return value  # type: ignore[return-value]  # rank 0 has one
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self._group)
        shared: T = values[0]
        return shared

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on every rank; continue only if it succeeded on all, so that no rank waits for one that is gone.

        Raises:
            PerfkitError: This rank's own error.
            PeerFailedError: `action` failed on another rank.
        """
        if self._store_barrier is not None:
            return self._store_barrier.run_on_all(action)
        try:
            result = action()
        except PerfkitError as error:
            self.all_gather(error.args[:1])
            raise
        failed = [rank for rank, error in enumerate(self.all_gather(())) if error]
        if failed:
            raise PeerFailedError(f"rank {failed[0]} failed")
        return result

    def run_on(self, chosen: bool, action: Callable[[], T]) -> T | None:
        """Run `action` on the ranks with `chosen` while the others wait; returns None on those."""
        return self.run_on_all(action if chosen else lambda: None)


def backend_of(device_type: str) -> str | None:
    """Return the backend of the default process group for a type of device; None without a process group.

    A group that was created without naming a backend (by a device mesh, for example) has one per type of device, and
    torch names it "undefined".
    """
    if not (dist.is_available() and dist.is_initialized()):
        return None
    name: str = dist.get_backend()
    return backend_on(dist.get_backend_config() if name == "undefined" else name, device_type)
