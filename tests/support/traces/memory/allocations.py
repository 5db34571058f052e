"""Adds allocations and releases to a trace, and keeps the allocator's total."""

from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.traces.trace_builder import MAIN_THREAD, Micros, TraceBuilder


@dataclass
class Allocator:
    """The allocator of one device of a trace; `total` is what was allocated before its first record."""

    builder: TraceBuilder
    total: int = 0
    kind: int = 0
    device: int = -1
    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes at each address."""

    def allocate(self, at: Micros, address: int, size: int, *, tid: int = MAIN_THREAD) -> Self:
        """Allocate `size` bytes."""
        self.sizes[address] = size
        return self._record(at, address, size, tid)

    def release(self, at: Micros, address: int, size: int | None = None, *, tid: int = MAIN_THREAD) -> Self:
        """Release what is at an address; `size` of what was allocated before the trace."""
        return self._record(at, address, -(self.sizes.pop(address) if size is None else size), tid)

    def _record(self, at: Micros, address: int, change: int, tid: int) -> Self:
        self.total += change
        where: dict[str, Any] = {"kind": self.kind, "device": self.device, "address": address, "tid": tid}
        self.builder.memory(at, self.total, change, **where)
        return self
