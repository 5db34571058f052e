"""Message sizes: from text, in steps of a factor, and in elements that every rank can divide."""

import re
from typing import Final, NamedTuple

from perfkit.errors import UsageError

_UNITS: Final[dict[str, int]] = {"": 1, "B": 1} | {
    f"{prefix}{ending}": (1000 if ending == "B" else 1024) ** power
    for power, prefix in enumerate("KMGT", 1)
    for ending in ("", "B", "iB")
}
_SIZE: Final = re.compile(r"(\d{1,15})\s*([A-Za-z]*)", re.ASCII)
_LARGEST: Final = 1 << 46


class Message(NamedTuple):
    """The size of a collective: S of metrics.md section 5, and its elements."""

    bytes: int
    elements: int
    per_rank: int
    """Elements of one rank's part, where parts of ranks are put together; otherwise all elements."""


def parse_size(text: str, option: str) -> int:
    """Return bytes: `8`, `64K` and `64KiB` (1024 bytes each), `64KB` (1000 bytes each).

    Raises:
        UsageError: It is not such a size, zero, or larger than any message.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2][:1].upper() + match[2][1:]) if match else None
    if match is None or unit is None:
        raise UsageError(f"{option} {text}: write a size as 8, 64K, 4MiB (powers of 1024) or 4MB (4,000,000 bytes)")
    size = int(match[1]) * unit
    if not 0 < size <= _LARGEST:
        raise UsageError(f"{option} {text}: must be from 1 byte to {_LARGEST >> 40} TiB")
    return size


def messages(smallest: int, largest: int, factor: int, item_bytes: int, parts: int) -> list[Message]:
    """Return the distinct messages from `smallest` to `largest` bytes, each `factor` times the one before.

    Args:
        smallest: Bytes.
        largest: Bytes.
        factor: At least 2.
        item_bytes: Bytes of an element.
        parts: Number of ranks among which the elements are divided; 1 if they are not. Sizes are rounded down to a
            multiple, but to no less than one element per rank.
    """
    found: dict[int, Message] = {}
    size = smallest
    while size <= largest:
        per_rank = max(1, size // (item_bytes * parts))
        elements = per_rank * parts
        found.setdefault(elements, Message(elements * item_bytes, elements, per_rank))
        size *= factor
    return list(found.values())
