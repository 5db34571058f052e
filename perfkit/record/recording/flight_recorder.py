"""Sizes of the collectives of a cycle, from torch's flight recorder: gloo's traces do not contain them."""

import json
from typing import Any, Final

import torch
import torch.distributed as dist

from perfkit.base.dtypes import DTYPES, tensor_bytes
from perfkit.records.trace_header import RecordedCollective

_PER_RANK: Final = {"gather": "input", "scatter": "output", "all_gather": "input"}
"""Where a rank certainly has its own part, and no more: S is the total over ranks (metrics.md section 5).

In the list of a coalesced all_gather, as DTensor issues it, the outputs lack the factor of the number of ranks.
"""


def collectives_since(start_ns: int) -> list[RecordedCollective] | None:
    """Return the collectives issued since `start_ns`, in order of issue; the last if the ring buffer was too short.

    A reader uses the records of an operator only if there are as many as in the trace, and reports the others.

    Returns:
        None if torch has no flight recorder.
    """
    dump = getattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace_json", None)
    if dump is None or not (dist.is_available() and dist.is_initialized()):
        return None
    entries = json.loads(dump(includeCollectives=True, onlyActive=False)).get("entries", [])
    sizes = _group_sizes()
    return [_read(entry, sizes) for entry in entries if entry["time_created_ns"] >= start_ns]


def _group_sizes() -> dict[str, int]:
    config: list[dict[str, Any]] = getattr(dist.distributed_c10d._world, "pg_config_info", [])
    return {str(group["pg_name"]): int(group["group_size"]) for group in config}


def _read(entry: dict[str, Any], group_sizes: dict[str, int]) -> RecordedCollective:
    operator = str(entry["profiling_name"]).rpartition(":")[2]
    group = str(entry["process_group"][0])
    group_size = group_sizes.get(group)
    dtypes = entry["input_dtypes"] or entry["output_dtypes"]
    return RecordedCollective(
        ns=int(entry["time_created_ns"]),
        op=operator,
        bytes=message_bytes(operator, entry, group_size),
        dtype=DTYPES.get(dtypes[0].lower(), (None,))[0] if dtypes else None,
        group=group,
        group_size=group_size,
        seq=int(entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]),
    )


def message_bytes(operator: str, entry: dict[str, Any], group_size: int | None) -> int | None:
    """Return the message size S of a recorded collective; None if unknown.

    It is the total over ranks of what each has (`_PER_RANK`), or else the larger of the inputs and outputs.
    """
    known = {side: tensor_bytes(entry[f"{side}_sizes"], entry[f"{side}_dtypes"]) for side in ("input", "output")}
    inputs, outputs = known["input"], known["output"]
    if inputs is None or outputs is None:
        return None
    if operator in _PER_RANK:
        own = known[_PER_RANK[operator]]
        return None if group_size is None or own is None else own * group_size
    return max(inputs, outputs)
