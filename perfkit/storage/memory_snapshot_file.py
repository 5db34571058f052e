"""Reads a snapshot of memory: what the allocator holds, and the history of what it did.

The layout is that of `torch.cuda.memory._snapshot` (torch/cuda/memory.py), also of `torch.xpu`; snapshots before
PyTorch 2.1 have no addresses of blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from perfkit.base.plain_pickle import PlainPickleError, load_plain
from perfkit.base.regular_file import read_regular
from perfkit.base.validation import plain_message
from perfkit.errors import TraceError
from perfkit.trace.intervals import Ints

MOST_ROWS: Final = 5_000_000
"""Blocks and records of a snapshot."""
_LISTS: Final = (list, tuple)
_MOST_FRAMES: Final = 1_000
_LONGEST_TEXT: Final = 1_000

# Sums of `MOST_ROWS` such sizes fit into 64 bits.
_Size = Annotated[int, Meta(ge=0, le=1 << 40)]
_Address = Annotated[int, Meta(ge=0)]
Stack = tuple[str, ...]
"""Frames, innermost first: `file.py(12): name` of Python, `name` of C++."""


class _Frame(msgspec.Struct, frozen=True):
    filename: str = ""
    line: int = 0
    name: str = ""


class _Block(msgspec.Struct, frozen=True):
    size: _Size
    state: str
    requested_size: Annotated[int, Meta(le=1 << 40)] = -1
    address: _Address | None = None
    frames: Any = ()


class _Segment(msgspec.Struct, frozen=True):
    address: _Address
    total_size: _Size
    blocks: list[_Block]
    device: Annotated[int, Meta(ge=0, le=4096)] = 0


class _Record(msgspec.Struct, frozen=True):
    action: str
    size: _Size
    addr: _Address | None = None
    frames: Any = ()
    device_free: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None


class _Snapshot(msgspec.Struct, frozen=True):
    segments: list[_Segment]
    device_traces: list[list[_Record]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The blocks that segments are divided into; columns of shape (b,)."""

    segment: Ints
    address: NDArray[np.uint64]
    size: Ints
    requested: Ints
    """Bytes that the program asked for; -1 if not recorded."""
    allocated: NDArray[np.bool_]
    """Whether a tensor uses it."""
    waiting: NDArray[np.bool_]
    """Whether it was released, but another stream may still use it."""
    stack: Ints
    """Index into `DeviceMemory.stacks`; -1 without one."""

    @property
    def asked(self) -> Ints:
        """Bytes that the program asked for, else the block's; shape (b,)."""
        return np.where(self.requested >= 0, self.requested, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the allocator did, in order; columns of shape (r,)."""

    action: tuple[str, ...]
    address: NDArray[np.uint64]
    size: Ints
    stack: Ints
    device_free: tuple[int | None, ...]
    """Of `oom`: what the device had left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory of one device."""

    device: int
    segment_size: Ints
    """Bytes reserved from the device, by segment."""
    blocks: Blocks
    history: History
    stacks: Sequence[Stack]


def read_snapshot(path: Path) -> list[DeviceMemory]:
    """Return the devices of a snapshot that have memory or a history.

    Raises:
        TraceError: The file cannot be read, or is not a snapshot of plain values.
    """
    try:
        raw = load_plain(read_regular(path))
        # Before anything is copied: a pickle can contain one list many times.
        rows = 0
        segments, traces = (raw.get(key, ()) if isinstance(raw, dict) else () for key in ("segments", "device_traces"))
        for part in (segments, traces):
            for one in part if isinstance(part, _LISTS) else ():
                inner = one.get("blocks") if isinstance(one, dict) else one
                rows += 1 + (len(inner) if isinstance(inner, _LISTS) else 0)
                if rows > MOST_ROWS:
                    raise PlainPickleError(f"more than {MOST_ROWS:,} blocks and records")
        snapshot = msgspec.convert(raw, _Snapshot)
        return _devices(snapshot)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except PlainPickleError as error:
        raise TraceError(f"{path}: not a memory snapshot: {error}") from error
    except (msgspec.ValidationError, OverflowError) as error:
        raise TraceError(f"{path}: not a memory snapshot: {plain_message(str(error))}") from error


def _devices(snapshot: _Snapshot) -> list[DeviceMemory]:
    stacks = _Stacks()
    numbers = {segment.device for segment in snapshot.segments}
    numbers |= {number for number, trace in enumerate(snapshot.device_traces) if trace}
    return [_device(snapshot, number, stacks) for number in sorted(numbers)]


def _device(snapshot: _Snapshot, number: int, stacks: "_Stacks") -> DeviceMemory:
    segments = [segment for segment in snapshot.segments if segment.device == number]
    rows = [(place, block) for place, segment in enumerate(segments) for block in segment.blocks]
    records = snapshot.device_traces[number] if number < len(snapshot.device_traces) else []
    state = [block.state for _, block in rows]
    return DeviceMemory(
        device=number,
        segment_size=_ints([segment.total_size for segment in segments]),
        blocks=Blocks(
            segment=_ints([place for place, _ in rows]),
            address=np.array([one for segment in segments for one in _addresses(segment)], np.uint64),
            size=_ints([block.size for _, block in rows]),
            requested=_ints([block.requested_size for _, block in rows]),
            allocated=np.array([one == "active_allocated" for one in state], np.bool_),
            waiting=np.array([one in _WAITING for one in state], np.bool_),
            stack=_ints([stacks.place(block.frames) for _, block in rows]),
        ),
        history=History(
            action=tuple(record.action for record in records),
            address=np.array([record.addr or 0 for record in records], np.uint64),
            size=_ints([record.size for record in records]),
            stack=_ints([stacks.place(record.frames) for record in records]),
            device_free=tuple(record.device_free for record in records),
        ),
        stacks=stacks.texts,
    )


_WAITING: Final = ("active_awaiting_free", "active_pending_free")


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _addresses(segment: _Segment) -> list[int]:
    """Return the blocks' addresses: recorded, or one after the other from the segment's."""
    found, following = [], segment.address
    for block in segment.blocks:
        found.append(following if block.address is None else block.address)
        following = found[-1] + block.size
    return found


class _Stacks:
    """The distinct stacks of a snapshot; a pickle has each list of frames once, and each frame."""

    def __init__(self) -> None:
        self.texts: list[Stack] = []
        self._places: dict[int, int] = {}
        self._frames: dict[int, str] = {}
        self._visited = 0

    def place(self, frames: Any) -> int:
        """Return the place of a list of frames; -1 if it is empty."""
        if not frames:
            return -1
        known = self._places.get(id(frames))
        if known is None:
            self.texts.append(tuple(map(self._text, msgspec.convert(frames, list[Any])[:_MOST_FRAMES])))
            known = self._places[id(frames)] = len(self.texts) - 1
        return known

    def _text(self, frame: Any) -> str:
        self._visited += 1
        if self._visited > 10 * MOST_ROWS:
            raise PlainPickleError("too many frames")
        known = self._frames.get(id(frame))
        if known is None:
            read = msgspec.convert(frame, _Frame)
            name, file = read.name[:_LONGEST_TEXT], read.filename[:_LONGEST_TEXT]
            known = f"{file}({read.line}): {name}" if file.endswith(".py") or file.startswith("<") else name or file
            self._frames[id(frame)] = known
        return known
