"""Memory of a rank: of its trace, and of torch's snapshots (metrics.md section 11)."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

from msgspec import Struct

MemoryCategory = Literal[
    "parameters",
    "gradients",
    "optimizer_state",
    "activations",
    "input",
    "communication",
    "temporary",
    "other",
    "before",
    "unknown",
]
MEMORY_CATEGORIES: Final[tuple[MemoryCategory, ...]] = get_args(MemoryCategory)
MEMORY_WORDS: Final[Mapping[MemoryCategory, str]] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "activations": "activations",
    "input": "input",
    "communication": "communication buffers",
    "temporary": "temporary",
    "other": "other",
    "before": "from before the recording",
    "unknown": "unknown",
}
"""What the categories are called in tables and charts."""


class MemoryBytes(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Bytes by what they are used for. JSON leaves out zeros."""

    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    """Allocated in forward, and needed until the backward pass of the same step."""
    input: int = 0
    """Allocated while data was loaded or moved to the device."""
    communication: int = 0
    """Allocated by collectives, and by FSDP for what it gathers and reduces."""
    temporary: int = 0
    """Released in the pass, or in the operator, that allocated it."""
    other: int = 0
    """Allocated in the recording, and none of the above."""
    before: int = 0
    """Allocated before the recording began, and not known to be one of the above."""
    unknown: int = 0
    """What the allocator's total has besides: its records are incomplete. Negative where releases are missing from the
    total."""


class MemoryHolder(Struct, frozen=True, kw_only=True, gc=False):
    """What is allocated at a peak, of one category and origin."""

    category: MemoryCategory
    operator: str | None
    """Outermost operator, without autograd's wrappers, that ran when it was allocated; None if none did, or unknown."""
    context: str | None
    """Innermost Python function of the program, without recorded ones the innermost annotation; None if unknown."""
    module: str | None
    """Innermost `nn.Module` whose forward ran; None if unknown (it needs `with_stack`)."""
    phase: str | None
    """Pass in which it was allocated: forward, backward or optimizer; None outside of them, or unknown."""
    count: int
    """Number of allocations."""
    bytes: int
    largest_bytes: int


class MemoryBlock(Struct, frozen=True, kw_only=True, gc=False):
    """Allocations at a peak that are alike: as large as each other, for the same, by the same functions."""

    category: MemoryCategory
    count: int
    bytes: int
    """Of each."""
    operator: str | None
    """As in `MemoryHolder`."""
    module: str | None
    phase: str | None
    stack: list[str]
    """Python functions that ran when it was allocated, innermost first, of those that were kept (10 us and longer);
    at most 30. Empty if unknown (it needs `with_stack`)."""


class SnapshotHolder(Struct, frozen=True, kw_only=True, gc=False):
    """Blocks allocated by one function of the program."""

    function: str | None
    """Innermost Python function of the program with file and line; without one of the program the innermost Python
    function. None if no stack was recorded, or it has no Python."""
    callee: str | None
    """What ran innermost on the stack: a Python function of a library, or without Python a C++ function."""
    count: int
    bytes: int
    largest_bytes: int


class SnapshotBlock(Struct, frozen=True, kw_only=True):
    """Blocks of one size and stack."""

    count: int
    bytes: int
    """Of each."""
    stack: list[str]
    """Frames when it was allocated, innermost first: `file.py(12): name`, of C++ the name. Empty if not recorded."""


class OutOfMemory(Struct, frozen=True, kw_only=True):
    """An allocation that failed."""

    requested_bytes: int
    device_free_bytes: int | None
    allocated_bytes: int
    """What tensors had asked for, at that moment."""
    reserved_bytes: int
    function: str | None
    """As in `SnapshotHolder`."""


class DeviceSnapshot(Struct, frozen=True, kw_only=True):
    """The memory of one device."""

    device: int
    allocated_bytes: int
    """Used by tensors when the snapshot was taken, as the allocator rounded their sizes up."""
    waiting_bytes: int
    """Released, but other streams may still use it."""
    reserved_bytes: int
    """Taken from the device by the caching allocator."""
    rounding_bytes: int | None
    """Part of the allocated bytes that the program did not ask for; None if not recorded."""
    fragmented_bytes: int
    """Free within segments that are partly used: they cannot be returned to the device, and serve only what fits."""
    unused_bytes: int
    """In segments without a used block: `empty_cache` returns them."""
    largest_free_bytes: int
    records: int
    """Actions in the history."""
    peak_bytes: int | None = None
    """Most bytes in the history that the program asked for; None without one, or if it does not fit the blocks."""
    reserved_at_peak_bytes: int | None = None
    after_records: int | None = None
    """Number of actions until the peak; 0: before the first."""
    holders: list[SnapshotHolder] = []
    """At the peak, else when the snapshot was taken; largest first, adding up to the bytes asked for."""
    largest: list[SnapshotBlock] = []
    """Largest blocks at that moment, largest first."""
    out_of_memory: list[OutOfMemory] = []
    """In order; the last ones of many."""


class MemorySnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot of a rank."""

    file: str
    rank: int | None
    """From the file's name."""
    devices: list[DeviceSnapshot]
