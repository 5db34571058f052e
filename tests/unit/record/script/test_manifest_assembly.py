"""The manifest of a script's run, from the records of ranks that end at any time."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.record.lifecycle.failure_guard import record_failure
from perfkit.record.script import manifest_assembly
from perfkit.record.script.manifest_assembly import (
    UNKNOWN_FIELDS,
    RankExitRecord,
    assemble_manifest,
    fields_of_failed,
    place_records,
    read_exit_records,
    remove_exit_records,
    write_exit_record,
)
from perfkit.record.script.rank_marks import mark_joined, process_mark
from perfkit.record.script.replica_checks import ReplicaChecks
from perfkit.record.script.samples import SampleCounter
from perfkit.record.script.script_run import ScriptRun
from perfkit.records.manifest import Failure, RankRecord, StepKind, World
from perfkit.storage.run_folder import MANIFEST_NAME, read_failure, read_manifest, write_manifest
from tests.support.manifests import make_manifest


def record(rank: int, host: str = "a", steps: int = 0) -> RankRecord:
    return RankRecord(
        rank=rank,
        local_rank=rank,
        node_rank=0,
        host=host,
        device="cpu",
        device_name="cpu",
        threads=1,
        step_wall_ns=[1] * steps,
        load_ns=[],
        loss=[],
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_manifest(tmp_path, replace(make_manifest(launcher="none"), unknown=UNKNOWN_FIELDS))
    return tmp_path


def test_places_follow_from_the_hosts() -> None:
    placed, world = place_records([record(rank, host) for rank, host in enumerate(["b", "a", "b"])], "slurm")
    assert [(each.node_rank, each.local_rank) for each in placed] == [(0, 0), (1, 0), (0, 1)]
    assert (world.world_size, world.nodes, world.local_world_sizes) == (3, 2, [2, 1])


def test_the_last_rank_completes_the_manifest_and_removes_the_records(folder: Path) -> None:
    long: list[StepKind] = ["cold", "active", "plain"]
    mark_joined(folder, 0)
    mark_joined(folder, 1)
    write_exit_record(folder, record(1, "b"), long)
    assert not assemble_manifest(folder, 2, "slurm")
    partial = read_manifest(folder)
    assert (partial.state, partial.finished_at) == ("running", None)  # rank 0 still trains
    assert ([each.rank for each in partial.ranks], partial.step_kinds) == ([1], long)
    assert partial.unknown.keys() == {*UNKNOWN_FIELDS, "ranks"}
    write_exit_record(folder, record(0, "a"), long[:2])
    assert assemble_manifest(folder, 2, "slurm")
    whole = read_manifest(folder)
    assert [each.node_rank for each in whole.ranks] == [0, 1]
    assert (whole.step_kinds, whole.unknown, whole.world.launcher) == (long[:2], UNKNOWN_FIELDS, "slurm")
    assert [path.name for path in folder.iterdir()] == [MANIFEST_NAME]


def test_a_rank_that_has_not_stepped_is_not_waited_for_and_added_if_it_does(folder: Path) -> None:
    long: list[StepKind] = ["cold", "active", "plain"]
    mark_joined(folder, 0)
    write_exit_record(folder, record(0, steps=3), long)
    assert assemble_manifest(folder, 2, "none")
    assert [path.name for path in folder.iterdir()] == [MANIFEST_NAME]
    mark_joined(folder, 1)
    write_exit_record(folder, record(1, steps=2), long[:2], ended=False)  # its schedule is over
    assert not assemble_manifest(folder, 2, "none")
    assert read_manifest(folder).step_kinds == long[:2]
    write_exit_record(folder, record(1, steps=3), long)
    assert assemble_manifest(folder, 2, "none")
    manifest = read_manifest(folder)
    assert ([each.rank for each in manifest.ranks], manifest.step_kinds) == ([0, 1], long)
    assert "ranks" not in manifest.unknown


def test_a_step_that_is_cold_on_one_rank_is_cold(folder: Path) -> None:
    """Its loader had batches ready when the trace had been written."""
    own: list[StepKind] = ["cold", "active", "cold", "cold", "plain"]
    other: list[StepKind] = ["cold", "active", "cold", "plain", "plain"]
    for rank, kinds in enumerate((other, own)):
        mark_joined(folder, rank)
        write_exit_record(folder, record(rank, steps=5), kinds)
    assert assemble_manifest(folder, 2, "none")
    assert read_manifest(folder).step_kinds == own


def test_a_rank_that_fails_keeps_what_the_others_have_left(folder: Path) -> None:
    long: list[StepKind] = ["cold", "active", "plain"]
    for rank in range(2):
        mark_joined(folder, rank)
    write_exit_record(folder, record(1, steps=3), long)
    assert not assemble_manifest(folder, 2, "none")
    (folder / ".rank1.left").unlink()  # it is in the manifest
    fields = fields_of_failed(folder, record(0, steps=2), long[:2])
    assert [each.rank for each in fields["ranks"]] == [0, 1]
    assert (fields["step_kinds"], fields["unknown"]) == (long[:2], UNKNOWN_FIELDS)
    write_exit_record(folder, record(1, steps=1), long[:1])  # one that is not
    assert fields_of_failed(folder, record(0, steps=2), long[:2])["step_kinds"] == long[:1]


def test_a_rank_that_fails_places_all_ranks_on_their_hosts(folder: Path) -> None:
    """What each rank takes for the layout is a guess: that all hosts have as many ranks as its own."""
    hosts = ["a", "a", "b"]
    before = read_manifest(folder)
    world = World(world_size=3, nodes=1, launcher="slurm", local_world_sizes=[2])
    write_manifest(folder, replace(before, world=world))
    for rank in range(2):
        write_exit_record(folder, record(rank, hosts[rank]), ["cold"])
    fields = fields_of_failed(folder, record(2, hosts[2]), ["cold"])
    assert [(each.node_rank, each.local_rank) for each in fields["ranks"]] == [(0, 0), (0, 1), (1, 0)]
    assert fields["world"] == World(world_size=3, nodes=2, launcher="slurm", local_world_sizes=[2, 1])
    (folder / ".rank0.left").unlink()
    assert "world" not in fields_of_failed(folder, record(2, hosts[2]), ["cold"])


def test_what_others_had_left_is_kept_though_a_second_rank_that_fails_removes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim_late(*args: Any) -> bool:
        remove_exit_records(folder)  # by another rank, after this one has claimed the failure
        return record_failure(*args)

    monkeypatch.setattr("perfkit.record.script.script_run.record_failure", claim_late)
    hangs = SimpleNamespace(explain=lambda cause, _error: cause, forget_turn=lambda: None)
    outcome = SimpleNamespace(report_failure=lambda *_: None)
    parts = (
        SimpleNamespace(folder=folder),
        SimpleNamespace(rank=0, world_size=2),
        None,
        hangs,
        None,
        0,
        SampleCounter(8, ReplicaChecks(enabled=False, is_recorded=lambda: False)),
    )
    failed = ScriptRun(*parts)  # type: ignore[arg-type]
    write_exit_record(folder, record(1, steps=1), ["cold"])
    failed._complete_failed(ValueError("bad"), record(0, steps=1), ["cold"], 1, outcome)  # type: ignore[arg-type]
    manifest = read_manifest(folder)
    assert (manifest.state, [each.rank for each in manifest.ranks]) == ("failed", [0, 1])


def test_what_was_measured_is_there_when_the_schedule_is_over(folder: Path) -> None:
    write_exit_record(folder, record(0), ["cold", "active"], ended=False)
    assert not assemble_manifest(folder, 1, "none")
    manifest = read_manifest(folder)
    assert (manifest.state, manifest.step_kinds) == ("running", ["cold", "active"])
    assert [path.name for path in folder.iterdir()] == [MANIFEST_NAME]
    write_exit_record(folder, record(0), ["cold", "active", "plain"])
    assert assemble_manifest(folder, 1, "none")
    assert read_manifest(folder).step_kinds == ["cold", "active", "plain"]


def test_a_rank_that_is_gone_after_its_schedule_does_not_keep_the_run_open(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    mark_joined(folder, 0)
    mark_joined(folder, 1, pid=process.pid)
    write_exit_record(folder, record(1), ["cold", "active"], ended=False)
    write_exit_record(folder, record(0), ["cold", "active"])
    assert assemble_manifest(folder, 2, "none")
    failure = read_manifest(folder).failure
    assert failure is not None
    assert (failure.rank, failure.message.startswith("was killed, or ended without a message")) == (1, True)


def test_a_rank_that_ends_while_the_records_are_read_has_not_been_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    def read_before_its_end(of_run: Path) -> list[RankExitRecord]:
        records = read_exit_records(of_run)
        mark_joined(folder, 1, pid=process.pid)
        write_exit_record(folder, record(1), ["cold", "active"])
        return records

    for rank in range(2):
        mark_joined(folder, rank)
    write_exit_record(folder, record(1), ["cold", "active"], ended=False)
    write_exit_record(folder, record(0), ["cold", "active"])
    monkeypatch.setattr(manifest_assembly, "read_exit_records", read_before_its_end)
    assert assemble_manifest(folder, 2, "none")
    assert read_manifest(folder).state == "completed"


def test_a_rank_that_ended_with_another_exit_code_than_0_fails_the_run_once_all_have_ended(folder: Path) -> None:
    for rank in range(2):
        mark_joined(folder, rank)
    write_exit_record(folder, record(1), ["cold"], code=3)
    assert not assemble_manifest(folder, 2, "none")
    assert read_manifest(folder).state == "running"
    write_exit_record(folder, record(0), ["cold"])
    assert assemble_manifest(folder, 2, "none")
    manifest, failure = read_manifest(folder), Failure(rank=1, message="the script ended with exit code 3")
    assert (manifest.state, manifest.failure, read_failure(folder)) == ("failed", failure, failure)
    assert [rank.rank for rank in manifest.ranks] == [0, 1]


def test_without_records_nothing_is_written(folder: Path) -> None:
    write_exit_record(folder, record(0), ["cold"])
    for temporary in (".hang0", ".hang11", ".rank0.worker99.0"):
        (folder / temporary).touch()
    remove_exit_records(folder)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    assert not assemble_manifest(folder, 2, "none")
    assert read_manifest(folder).state == "running"


@pytest.mark.parametrize("joined_before", [True, False])
def test_what_comes_while_another_rank_writes_is_written_by_that_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, joined_before: bool
) -> None:
    answers: list[bool] = []

    def end_meanwhile(*args: Any) -> None:
        write_manifest(*args)
        if not answers:
            mark_joined(folder, 1)
            write_exit_record(folder, record(1, steps=1), ["cold"])
            answers.append(assemble_manifest(folder, 2, "none"))

    monkeypatch.setattr(manifest_assembly, "write_manifest", end_meanwhile)
    mark_joined(folder, 0)
    if joined_before:
        mark_joined(folder, 1)
    write_exit_record(folder, record(0, steps=1), ["cold"])
    assert (assemble_manifest(folder, 2, "none"), answers) == (True, [False])
    manifest = read_manifest(folder)
    assert (manifest.state, [each.rank for each in manifest.ranks]) == ("completed", [0, 1])
    assert [path.name for path in folder.iterdir()] == [MANIFEST_NAME]


def test_a_rank_that_holds_the_lock_is_not_waited_for(folder: Path) -> None:
    (folder / ".closing").touch()
    write_exit_record(folder, record(0), ["cold"])
    assert not assemble_manifest(folder, 1, "none")
    assert read_manifest(folder).state == "running"


def test_the_lock_of_a_rank_that_was_killed_is_taken(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    (folder / ".closing").write_bytes(process_mark(process.pid))
    write_exit_record(folder, record(0), ["cold"])
    assert assemble_manifest(folder, 1, "none")
    assert read_manifest(folder).state == "completed"
    assert [path.name for path in folder.iterdir()] == [MANIFEST_NAME]


def test_the_lock_of_a_rank_that_runs_is_not(folder: Path) -> None:
    (folder / ".closing").write_bytes(process_mark())
    write_exit_record(folder, record(0), ["cold"])
    assert not assemble_manifest(folder, 1, "none")
    assert (folder / ".closing").exists()
