"""Ranks without a trace: those that a capture left out are no gap."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import perfkit
from perfkit.records.manifest import CaptureRecord
from perfkit.storage.run_folder import write_manifest
from tests.support.manifests import make_manifest
from tests.support.traces.trace_builder import TraceBuilder

LEFT_OUT = "to record these steps (perfkit capture --ranks): what the others did in them is not known"


def trace(rank: int, world_size: int) -> TraceBuilder:
    builder = TraceBuilder(rank, world_size, backend="gloo").step(0, 0, 100).op("aten::mm", 5, 50)
    return builder.gloo("all_reduce", 60, 10)


@pytest.mark.parametrize(
    ("asked", "there", "expected"),
    [
        ([0, 7], [0, 7], [("info", f"only ranks 0, 7 of 8 were {LEFT_OUT}")]),
        ([3], [3], [("info", f"only rank 3 of 8 was {LEFT_OUT}")]),
        (
            [0, 7],
            [0],
            [
                ("info", f"only ranks 0, 7 of 8 were {LEFT_OUT}"),
                ("warning", "trace missing for 1 of the 2 that were to record (rank 7); excluded"),
            ],
        ),
        (list(range(8)), list(range(8)), []),
        (
            list(range(8)),
            list(range(7)),
            [("warning", "trace missing for 1 of the 8 that were to record (rank 7); excluded")],
        ),
        (None, [0, 7], [("warning", "trace missing for 6 of 8 ranks (ranks 1-6); excluded")]),
        ([-1, 1 << 40], range(7), [("warning", "trace missing for 1 of 8 ranks (rank 7); excluded")]),
    ],
)
def test_ranks_that_a_capture_left_out_are_no_gap(
    asked: list[int] | None, there: Sequence[int], expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    for rank in there:
        trace(rank, 8).write(tmp_path / f"rank{rank}.json")
    manifest = make_manifest("completed")
    capture = CaptureRecord(first_step=4, steps=1, ranks=list(there), asked=asked)
    write_manifest(tmp_path, replace(manifest, world=replace(manifest.world, world_size=8), capture=capture))
    (run,) = perfkit.analyze(tmp_path).runs
    found = [(finding.severity, finding.message) for finding in run.findings if finding.code == "ranks_missing"]
    assert sorted(found) == expected
