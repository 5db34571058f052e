"""Makes dumps of torch's flight recorder as NCCL's ranks write them: made by hand, in the layout of version 2.10.

The layout is that of `torch/csrc/distributed/c10d/FlightRecorderDetail.hpp` in torch 2.13; the tests of gloo's ranks
read dumps that torch itself wrote.
"""

import json
import pickle
from pathlib import Path
from typing import Any


def entry(
    seq: int,
    op: str = "all_reduce",
    *,
    group: tuple[str, str] = ("0", "default_pg"),
    state: str = "started",
    elements: int = 1000,
    dtype: str = "Float",
    line: int = 10,
    p2p: bool = False,
) -> dict[str, Any]:
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": group,
        "collective_seq_id": 0 if p2p else seq,
        "p2p_seq_id": seq if p2p else 0,
        "op_id": seq,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": 1_700_000_000_000_000_000 + seq,
        "input_sizes": [[elements]],
        "input_dtypes": [dtype],
        "output_sizes": [[elements]],
        "output_dtypes": [dtype],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": p2p,
        "frames": [
            {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/distributed_c10d.py", "line": 3245},
            {"name": "train", "filename": "/job/train.py", "line": line},
        ],
    }


def dump(*entries: dict[str, Any], ranks: int = 4) -> dict[str, Any]:
    members = str(list(range(ranks)))
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": members}},
        "pg_status": {
            "0": {"last_enqueued_collective": 2, "last_started_collective": 2, "last_completed_collective": 1}
        },
        "comm_lib_version": "2.28.9",
        "entries": list(entries),
    }


def write_dumps(folder: Path, dumps: list[dict[str, Any]], *, as_json: bool = False) -> None:
    folder.mkdir(exist_ok=True)
    for rank, content in enumerate(dumps):
        name = f"nccl_trace_rank_{rank}"
        if as_json:
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        else:
            (folder / name).write_bytes(pickle.dumps(content, protocol=2))
