"""Durations that users write: `60ms`, `1.5s`, `10m`."""

import re
from typing import Final

from perfkit.errors import UsageError

_UNITS_NS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(ns|us|ms|s|m|h)")


def parse_duration(text: str, option: str) -> int:
    """Return a duration such as `60ms`, `1.5s` or `10m` in nanoseconds.

    Raises:
        UsageError: It has no unit, or is not a number.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option}: '{text}' is not a duration; write it as 60ms, 1.5s, 10m or 1h")
    return round(float(match[1]) * _UNITS_NS[match[2]])
