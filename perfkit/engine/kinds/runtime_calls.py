"""Calls of devices' runtimes and drivers by name: what `perfkit.accelerators` lists, as patterns of what they do."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from perfkit.accelerators import Accelerator, RuntimeCalls, accelerators

_UNLISTED: Final = RuntimeCalls(prefixes=("musa", "mu", "cnrt", "cn"), allocating=("musaMalloc", "musaFree"))
"""Runtimes of devices that have no row: Moore Threads' and Cambricon's."""

_NEVER: Final = "(?!)"
POLLING: Final = " (polling)"
"""What is appended to the name of a query that stands for a loop of them."""


class CallPatterns(NamedTuple):
    """What matches the starts of names of calls that do one thing."""

    synchronising: "re.Pattern[str]"
    """Calls that return when the device, or the copy, is done."""
    device_wide: "re.Pattern[str]"
    """Those of them that return when all work of the device is done."""
    querying: "re.Pattern[str]"
    """Calls that ask whether the device is done."""
    allocating: "re.Pattern[str]"
    compiling: "re.Pattern[str]"
    """Calls that load or link code."""
    launching: "re.Pattern[str]"
    graph_launch: "re.Pattern[str]"
    stream_wait: "re.Pattern[str]"
    """Calls that make a stream wait for work of another one."""
    copying: "re.Pattern[str]"


@cache
def call_patterns() -> CallPatterns:
    """Return the patterns of all accelerators."""
    rows = (*(row.runtime for row in accelerators()), _UNLISTED)
    prefix = f"(?:{'|'.join(text for row in rows for text in row.prefixes)})"
    waits = rf"{prefix}(Stream|Device|Event|Ctx|Thread)_?Synchronize"
    queries = rf"{prefix}(Stream|Event)_?Query"
    return CallPatterns(
        synchronising=_any(
            [waits, queries + re.escape(POLLING), *(text for row in rows for text in row.synchronising)]
        ),
        device_wide=re.compile(f"{prefix}(Device|Ctx)_?Synchronize"),
        querying=re.compile(queries),
        allocating=_any(text for row in rows for text in row.allocating),
        compiling=_any(text for row in rows for text in row.compiling),
        launching=re.compile(rf"{prefix}_?(?:[A-Z]\w*)?Launch"),
        graph_launch=re.compile(rf"{prefix}GraphLaunch"),
        stream_wait=re.compile(rf"{prefix}StreamWaitEvent"),
        copying=re.compile(rf"{prefix}Memcpy"),
    )


def accelerator_of(call: str) -> Accelerator | None:
    """Return the accelerator to whose runtime a call belongs; None if no row has its prefix."""
    return next((row for row in accelerators() if any(re.match(text, call) for text in row.runtime.prefixes)), None)


def _any(patterns: Iterable[str]) -> "re.Pattern[str]":
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or _NEVER)
