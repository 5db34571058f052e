"""What the ranks say to each other besides gradients: names, outcomes, records, and waiting for each other."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from perfkit.accelerators import device_backends
from perfkit.capture.distributed.store_barrier import PeerFailedError, StoreBarrier
from perfkit.errors import PerfkitError

T = TypeVar("T")


class RankGroup:
    """The ranks of the default process group; a team of one where there is none.

    With gloo it talks in a group of its own, which `close` ends. The default group lives as long as the user's model,
    and a thread of gloo's that lets go of a Python tensor while the interpreter shuts down aborts the process.

    Args:
        device: Where this rank computes.
        timeout: Limit of each exchange; None is torch's own.
        meeting: How the ranks wait for what has no limit; without one every wait is an exchange.
    """

    def __init__(
        self, device: torch.device, timeout: timedelta | None = None, meeting: StoreBarrier | None = None
    ) -> None:
        self.current_activity = "the preparation"
        """What the ranks are about, for messages."""
        self._meeting = meeting
        self._grouped = dist.is_available() and dist.is_initialized()
        self.rank: int = dist.get_rank() if self._grouped else 0
        self.world_size: int = dist.get_world_size() if self._grouped else 1
        backend = dist.get_backend() if self._grouped else None
        self._devices = [_index(device)] if backend in device_backends() and device.type != "cpu" else None
        self._own = backend == "gloo"
        self._group = dist.new_group(backend="gloo", timeout=timeout) if self._own else None

    def close(self) -> None:
        """End the group; the team is of no use afterwards."""
        if self._own:
            dist.destroy_process_group(self._group)
            self._group = None

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self._grouped:
            dist.barrier(self._group, device_ids=self._devices)

    def all_gather(self, value: T) -> list[T]:
        """Return every rank's `value`, by rank."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, self._group)
        return values

    def broadcast(self, value: T | None) -> T:
        """Return rank 0's `value` on every rank."""
        if self.world_size == 1:
            return value  # type: ignore[return-value]  # rank 0 has one
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self._group)
        shared: T = values[0]
        return shared

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on every rank; go on only if it succeeded on all, so that nobody waits for a rank that is gone.

        Raises:
            PerfkitError: This rank's own error.
            PeerFailedError: Another rank has one.
        """
        if self._meeting is not None:
            return self._meeting.run_on_all(action)
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
        """Run `action` on the ranks with `chosen`, while the others wait; None on those."""
        return self.run_on_all(action if chosen else lambda: None)


def _index(device: torch.device) -> int:
    """Return the device's number; one without is the current one."""
    index: int | None = device.index
    return int(torch.get_device_module(device.type).current_device()) if index is None else index
