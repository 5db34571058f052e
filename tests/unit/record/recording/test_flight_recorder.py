"""What is kept of a collective that torch's flight recorder saw, and how it is written into a trace's header."""

import json
from typing import Any

import msgspec
import pytest
import torch

from perfkit.record.recording.flight_recorder import collectives_since, message_bytes
from perfkit.records.trace_header import PerfkitHeader, RecordedCollective


def entry(inputs: list[list[int]], outputs: list[list[int]], dtype: str = "Float") -> dict[str, Any]:
    return {
        "input_sizes": inputs,
        "input_dtypes": [dtype] * len(inputs),
        "output_sizes": outputs,
        "output_dtypes": [dtype] * len(outputs),
    }


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("Byte", 1), ("Half", 2), ("BFloat16", 2), ("Float", 4), ("Long", 8), ("ComplexDouble", 16), ("Float8_e5m2", 1)],
)
def test_sizes_of_types_as_the_recorder_spells_them(dtype: str, size: int) -> None:
    assert message_bytes("all_reduce", entry([[3, 5]], [[3, 5]], dtype), 2) == 15 * size


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "expected"),
    [
        ("all_reduce", [[10]], [[10]], 40),
        ("all_gather", [[4]], [[2, 4]], 32),
        ("all_gather", [[4]], [[1, 4]], 32),  # DTensor's, coalesced: as many outputs as inputs
        ("all_gather", [[4], [3]], [[2, 4]], 56),
        ("reduce_scatter", [[8]], [[4]], 32),
        ("gather", [[4]], [], 32),
        ("scatter", [], [[4]], 32),
        ("broadcast", [[3, 2]], [[3, 2]], 24),
        ("barrier", [], [], 0),
    ],
)
def test_sizes_of_collectives(operator: str, inputs: list[list[int]], outputs: list[list[int]], expected: int) -> None:
    assert message_bytes(operator, entry(inputs, outputs), 2) == expected


def test_without_a_group_size_the_total_over_ranks_is_unknown() -> None:
    assert message_bytes("scatter", entry([], [[10]]), None) is None


def test_an_unknown_type_has_no_size() -> None:
    assert message_bytes("all_reduce", entry([[10]], [[10]], "Quaternion"), 2) is None


def test_the_header_is_written_as_traces_have_it() -> None:
    collective = RecordedCollective(ns=1, op="all_reduce", bytes=4, dtype="float32", group="0", group_size=2, seq=3)
    header = PerfkitHeader(
        run="r", rank=0, world_size=2, cycle=0, workload="w", source="s", steps=(2, 4), collectives=[collective]
    )
    text = msgspec.json.encode(header)
    assert text == (
        b'{"schema_version":1,"run":"r","rank":0,"world_size":2,"cycle":0,"workload":"w","source":"s","mesh":{},'
        b'"light":false,"steps":[2,4],'
        b'"collectives":[{"ns":1,"op":"all_reduce","bytes":4,"dtype":"float32","group":"0","group_size":2,"seq":3}],'
        b'"pipeline":null,"tensors":null,"pauses":null,"fetches":null,"without_batch":null,"core_use":null,'
        b'"samples":null,"worker_samples":null}'
    )
    assert msgspec.json.decode(text, type=PerfkitHeader) == header


@pytest.mark.parametrize(("start_ns", "expected"), [(0, [6, 7]), (60, [6, 7]), (65, [7]), (80, [])])
def test_of_a_ring_that_was_too_short_the_last_collectives_are_read(
    start_ns: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        entry([[2]], [[2]])
        | {
            "record_id": number,
            "time_created_ns": 10 * number,
            "profiling_name": "gloo:all_reduce",
            "process_group": ["0", "default_pg"],
            "is_p2p": False,
            "collective_seq_id": number,
        }
        for number in (6, 7)
    ]
    dump = json.dumps({"entries": entries})
    monkeypatch.setattr(torch._C._distributed_c10d, "_dump_fr_trace_json", lambda **_: dump)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("perfkit.record.recording.flight_recorder._group_sizes", lambda: {"0": 2})
    found = collectives_since(start_ns)
    assert found is not None
    assert [one.seq for one in found] == expected
