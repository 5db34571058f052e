"""Sizes of the collectives of a cycle, from torch's flight recorder: the trace itself has none for gloo."""

import json
from typing import Any, Final

import torch
import torch.distributed as dist
from msgspec import Struct

_BYTES: Final = {
    "Byte": ("uint8", 1),
    "Char": ("int8", 1),
    "Short": ("int16", 2),
    "Int": ("int32", 4),
    "Long": ("int64", 8),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "Float": ("float32", 4),
    "Double": ("float64", 8),
    "Bool": ("bool", 1),
    "ComplexFloat": ("complex64", 8),
    "ComplexDouble": ("complex128", 16),
    "Float8_e4m3fn": ("float8_e4m3fn", 1),
    "Float8_e5m2": ("float8_e5m2", 1),
}
"""The recorder's name of a type: torch's name, and its size."""

_PER_RANK: Final = ("gather", "scatter")
"""Operators of which a rank may hold only its own part: S is the total over ranks (metrics.md section 5)."""


class Collective(Struct, frozen=True, kw_only=True):
    """One collective as it was issued."""

    ns: int
    """Absolute time of issue; the clock of the trace."""
    op: str
    bytes: int | None
    """S as metrics.md section 5 has it."""
    dtype: str | None
    group: str
    group_size: int | None
    seq: int


def collectives_since(start_ns: int) -> list[Collective] | None:
    """Return the collectives issued since `start_ns`, in order of issue.

    Returns:
        None where torch has no recorder, or where its ring was too short to hold them all.
    """
    dump = getattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace_json", None)
    if dump is None or not (dist.is_available() and dist.is_initialized()):
        return None
    entries = json.loads(dump(includeCollectives=True, onlyActive=False)).get("entries", [])
    if entries and entries[0]["record_id"] > 0 and entries[0]["time_created_ns"] >= start_ns:
        return None
    sizes = _group_sizes()
    return [_read(entry, sizes) for entry in entries if entry["time_created_ns"] >= start_ns]


def _group_sizes() -> dict[str, int]:
    config: list[dict[str, Any]] = getattr(dist.distributed_c10d._world, "pg_config_info", [])
    return {str(group["pg_name"]): int(group["group_size"]) for group in config}


def _read(entry: dict[str, Any], group_sizes: dict[str, int]) -> Collective:
    operator = str(entry["profiling_name"]).rpartition(":")[2]
    group = str(entry["process_group"][0])
    group_size = group_sizes.get(group)
    dtypes = entry["input_dtypes"] or entry["output_dtypes"]
    return Collective(
        ns=int(entry["time_created_ns"]),
        op=operator,
        bytes=message_bytes(operator, entry, group_size),
        dtype=_BYTES.get(dtypes[0], (None,))[0] if dtypes else None,
        group=group,
        group_size=group_size,
        seq=int(entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]),
    )


def message_bytes(operator: str, entry: dict[str, Any], group_size: int | None) -> int | None:
    """Return S of one recorded collective: the larger of what goes in and what comes out; None if unknown."""
    inputs = _sum_bytes(entry["input_sizes"], entry["input_dtypes"])
    outputs = _sum_bytes(entry["output_sizes"], entry["output_dtypes"])
    if inputs is None or outputs is None:
        return None
    if operator in _PER_RANK:
        own = inputs if operator == "gather" else outputs
        return None if group_size is None else own * group_size
    return max(inputs, outputs)


def _sum_bytes(sizes: list[list[int]], dtypes: list[str]) -> int | None:
    total = 0
    for shape, dtype in zip(sizes, dtypes, strict=False):
        if dtype not in _BYTES:
            return None
        count = _BYTES[dtype][1]
        for length in shape:
            count *= length
        total += count
    return total
