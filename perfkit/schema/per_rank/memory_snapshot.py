"""What torch's snapshots of memory tell (metrics.md section 11)."""

from msgspec import Struct


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
