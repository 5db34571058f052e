"""`perfkit diagnose` on dumps of NCCL's flight recorder, made in the documented layout, and on damaged ones."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfkit.records.hang import Diagnosis
from tests.support.hangs.flight_dumps import dump, entry, write_dumps
from tests.support.hangs.rank_states import call, state
from tests.support.processes.command import run_command

DONE = entry(1, state="completed")


def diagnosed(folder: Path, code: int) -> Diagnosis:
    result = run_command("diagnose", folder, "-f", "json")
    assert (result.returncode, result.stderr) == (code, "")
    return msgspec.json.decode(result.stdout, type=Diagnosis)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("odd", "kind", "text"),
    [
        ([DONE], "not_issued", "rank 3 has not issued it"),
        ([DONE, entry(2, "broadcast", elements=7)], "operator", "rank 3 issued broadcast #2 (28 B, float32)"),
        ([DONE, entry(2, elements=7)], "size", "the sizes differ"),
        ([DONE, entry(2, dtype="Double")], "dtype", "the data types differ"),
        (
            [DONE, entry(1, group=("1", "tp"), line=44)],
            "not_issued",
            "it issued all_reduce #1 of group tp at train.py:44, which has not ended",
        ),
    ],
)
def test_what_made_dumps_show(tmp_path: Path, odd: list[dict[str, Any]], kind: str, text: str, as_json: bool) -> None:
    waiting = [dump(DONE, entry(2)) for _ in range(3)]
    write_dumps(tmp_path, [*waiting, dump(*odd)], as_json=as_json)
    found = diagnosed(tmp_path, 3)
    assert (found.faults[0].kind, found.faults[0].ranks, found.faults[0].waiting) == (kind, [3], [0, 1, 2])
    assert text in found.headline
    assert "#2 of the default group (4.00 kB, float32) at train.py:10" in found.headline


def test_a_healthy_job_agrees(tmp_path: Path) -> None:
    messages = entry(9, "send 0->1", p2p=True, state="completed")
    write_dumps(tmp_path, [dump(DONE, messages, entry(2, state="completed")) for _ in range(4)])
    assert diagnosed(tmp_path, 0).headline.startswith("All ranks agree: no rank waits for another in the 8 collectives")


def test_too_few_dumps_leave_it_open(tmp_path: Path) -> None:
    write_dumps(tmp_path, [dump(DONE)])
    assert diagnosed(tmp_path, 4).verdict == "unknown"


def test_a_dump_that_would_execute_something_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "executed"),)

    write_dumps(tmp_path, [dump(DONE, entry(2)), dump(DONE)])
    (tmp_path / "nccl_trace_rank_2").write_bytes(pickle.dumps({"version": "2.10", "entries": [Evil()]}, protocol=2))
    found = diagnosed(tmp_path, 3)
    assert not (tmp_path / "executed").exists()
    assert any(text.startswith("nccl_trace_rank_2: ") for text in found.unread)
    assert "rank 1 has not issued it" in found.headline
    assert "ranks 2-3 left no file" in found.headline


def test_perfkits_own_records_are_read_instead_of_dumps(tmp_path: Path) -> None:
    for rank in range(2):
        calls = [call(1, done=True)] + [call(2)] * (rank == 0)
        (tmp_path / f"rank{rank}.hang.json").write_bytes(msgspec.json.encode(state(rank, *calls, world_size=2)))
    write_dumps(tmp_path, [dump(DONE)])
    result = run_command("diagnose", tmp_path, "-o", tmp_path / "found.json", "-o", tmp_path / "found.md")
    assert result.returncode == 3
    assert "Where each rank was" in result.stdout
    assert json.loads((tmp_path / "found.json").read_text())["verdict"] == "fault"
    assert "rank 1 has not issued it" in (tmp_path / "found.md").read_text()


def test_a_folder_with_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "rank0.hang.json").write_text('{"schema_version": 99, "rank": 0}')
    result = run_command("diagnose", tmp_path)
    assert result.returncode == 1
    assert "schema version 99" in result.stderr
    assert "nccl_trace_rank_<R>" in result.stderr
