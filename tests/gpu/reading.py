"""Shares of a step read from the JSON of a trace, by other means than those of perfkit: lists of intervals."""

import gzip
import json
from pathlib import Path
from typing import Any, Final

_CATEGORIES: Final = {"kernel": "compute", "gpu_memcpy": "memcpy", "gpu_memset": "memcpy"}


def read_shares(path: Path, begin_ns: int, end_ns: int) -> dict[str, float]:
    """Return shares of `[begin_ns, end_ns)`: exclusive time of kernels, collectives and copies, in this priority."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace: dict[str, Any] = json.loads(text)
    begin, end = ((at - int(trace.get("baseTimeNanoseconds", 0))) / 1e3 for at in (begin_ns, end_ns))
    spans: dict[str, list[tuple[float, float]]] = {"compute": [], "communication": [], "memcpy": []}
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and (category := _CATEGORIES.get(event.get("cat", ""))):
            clipped = max(event["ts"], begin), min(event["ts"] + event["dur"], end)
            spans["communication" if event["name"].startswith("nccl") else category].append(clipped)
    shares: dict[str, float] = {}
    earlier: list[tuple[float, float]] = []
    covered = 0.0
    for category, intervals in spans.items():
        earlier += intervals
        now = _united(earlier)
        shares[category] = (now - covered) / (end - begin)
        covered = now
    return shares


def _united(intervals: list[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
