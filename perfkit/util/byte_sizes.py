"""Sizes of messages, samples and files from text."""

import re
from typing import Final

from perfkit.errors import UsageError

_UNITS: Final[dict[str, int]] = {"": 1, "B": 1} | {
    f"{prefix}{ending}": (1000 if ending == "B" else 1024) ** power
    for power, prefix in enumerate("KMGT", 1)
    for ending in ("", "B", "iB")
}
_SIZE: Final = re.compile(r"(\d{1,15})\s*([A-Za-z]*)", re.ASCII)
_LARGEST: Final = 1 << 46


def parse_size(text: str, option: str) -> int:
    """Return bytes: `8`, `64K` and `64KiB` (1024 bytes each), `64KB` (1000 bytes each).

    Raises:
        UsageError: It is not such a size, zero, or larger than any.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2][:1].upper() + match[2][1:]) if match else None
    if match is None or unit is None:
        raise UsageError(f"{option} {text}: write a size as 8, 64K, 4MiB (powers of 1024) or 4MB (4,000,000 bytes)")
    size = int(match[1]) * unit
    if not 0 < size <= _LARGEST:
        raise UsageError(f"{option} {text}: must be from 1 byte to {_LARGEST >> 40} TiB")
    return size
