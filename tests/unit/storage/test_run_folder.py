import os
import resource
import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from perfkit.base.atomic_write import atomic_write
from perfkit.errors import StoreError
from perfkit.record.recording.manifest_writer import current_commit
from perfkit.records.manifest import MANIFEST_VERSION, Failure, RunManifest, World
from perfkit.storage.report_file import load_report
from perfkit.storage.run_folder import (
    MANIFEST_NAME,
    SWEEP_NAME,
    claim_failure,
    create_run_folder,
    fail,
    file_stem,
    list_files,
    read_manifest,
    read_sweep,
    write_manifest,
)

MANIFEST = RunManifest(
    run="r",
    state="running",
    workload="w",
    source="memory",
    started_at="2026-01-01T00:00:00+00:00",
    config={"steps": 3},
    versions={},
    backend="gloo",
    device="cpu",
    world=World(world_size=1, nodes=1, launcher="none", local_world_sizes=[1]),
)


def test_folders_are_never_reused(tmp_path: Path) -> None:
    made = [create_run_folder(tmp_path / "new" / "traces", "a").name for _ in range(3)]
    assert made == ["a", "a-2", "a-3"]


def test_a_trace_dir_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="--trace-dir"):
        create_run_folder(tmp_path / "file", "a")
    with pytest.raises(StoreError, match="--trace-dir"):
        create_run_folder(tmp_path / "file" / "below", "a")


def test_manifest_round_trip(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST_NAME]


def test_manifests_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot read"):
        read_manifest(tmp_path)
    newer = msgspec.to_builtins(MANIFEST) | {"schema_version": MANIFEST_VERSION + 1}
    (tmp_path / MANIFEST_NAME).write_bytes(msgspec.json.encode(newer))
    with pytest.raises(StoreError, match=f"schema version {MANIFEST_VERSION + 1}.*update perfkit"):
        read_manifest(tmp_path)
    for damaged in (b"{", b"[]", b'{"schema_version": 2}', b"\xff"):
        (tmp_path / MANIFEST_NAME).write_bytes(damaged)
        with pytest.raises(StoreError, match="not a valid manifest"):
            read_manifest(tmp_path)


def test_files_of_a_run(tmp_path: Path) -> None:
    assert file_stem(3, 0, 1) == "rank3"
    assert file_stem(3, 1, 2) == "rank3.cycle1"
    for name in ("rank10.json.gz", "rank2.json.gz", "rank2.key_averages.txt", ".rank2.json.gz.1.tmp", "run.json"):
        (tmp_path / name).write_bytes(b"12")
    found = [(file.path, file.rank, file.cycle, file.bytes, file.kind) for file in list_files(tmp_path)]
    assert found == [
        ("rank2.json.gz", 2, 0, 2, "trace"),
        ("rank2.key_averages.txt", 2, 0, 2, "key_averages"),
        ("rank10.json.gz", 10, 0, 2, "trace"),
    ]


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")

    def write() -> None:
        with atomic_write(target) as stream:
            stream.write(b"ne")
            raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="cannot write"):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_only_the_first_failure_counts(tmp_path: Path) -> None:
    assert claim_failure(tmp_path, Failure(rank=1, message="first"))
    assert not claim_failure(tmp_path, Failure(rank=0, message="second"))
    assert b"first" in (tmp_path / "failure.json").read_bytes()


def test_a_run_that_could_only_say_why_it_failed_has_failed(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(MANIFEST, state="running", failure=None))
    assert read_manifest(tmp_path).state == "running"
    failure = Failure(rank=1, message="no space")
    assert claim_failure(tmp_path, failure)
    assert (read_manifest(tmp_path).state, read_manifest(tmp_path).failure) == ("failed", failure)
    (tmp_path / "failure.json").write_bytes(b"")
    assert (read_manifest(tmp_path).state, read_manifest(tmp_path).failure) == ("failed", None)


def test_on_a_full_disk_the_manifest_says_at_least_that_the_run_failed(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(MANIFEST, state="running", failure=None))
    size = (tmp_path / MANIFEST_NAME).stat().st_size
    failure = Failure(rank=1, message="No space left on device")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))  # what is there can be changed, and no file is larger
    try:
        assert claim_failure(tmp_path, failure)
        with pytest.raises(StoreError):
            fail(tmp_path, failure, {"unknown": {"ranks": "?" * size}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert msgspec.json.decode((tmp_path / MANIFEST_NAME).read_bytes())["state"] == "failed"
    assert read_manifest(tmp_path) == replace(MANIFEST, state="failed", failure=failure)
    assert {path.name for path in tmp_path.iterdir()} == {MANIFEST_NAME, "failure.json"}


def test_the_commit_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert current_commit() is None  # no repository
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com"]
    subprocess.run(["git", "init", "-q"], check=True)
    assert current_commit() is None  # nothing committed yet
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run(["git", "log", "-1", "--format=%H"], capture_output=True, text=True, check=True).stdout
    assert current_commit() == head.strip()
    monkeypatch.setenv("PATH", "")
    assert current_commit() is None  # no git


BOMBS = {
    "nested": b'{"schema_version": 2, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested without an end": b'{"schema_version": 2, "x": ' + b"[" * 100_000,
    "a number of many digits": b'{"schema_version": ' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize("kind", BOMBS)
def test_json_that_is_an_attack_is_damaged_json(tmp_path: Path, kind: str) -> None:
    for name in (MANIFEST_NAME, SWEEP_NAME, "report.json"):
        (tmp_path / name).write_bytes(BOMBS[kind])
    for read, message in (
        (read_manifest, "not a valid manifest"),
        (read_sweep, "not a valid sweep record"),
        (lambda folder: load_report(folder / "report.json"), "not a perfkit report"),
    ):
        with pytest.raises(StoreError, match=message):
            read(tmp_path)


def test_links_that_lead_to_each_other_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(StoreError, match="is not a folder: choose another --trace-dir"):
        create_run_folder(tmp_path / "a", "run")


@pytest.mark.parametrize("kind", ["pipe", "device", "enormous"])
@pytest.mark.timeout(200)  # reading a pipe blocks
def test_a_manifest_that_is_not_a_small_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / MANIFEST_NAME
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    with pytest.raises(StoreError, match="regular file" if kind != "enormous" else "larger than"):
        read_manifest(tmp_path)


def test_a_manifest_keeps_arguments_that_are_not_utf_8(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(MANIFEST, config={"arguments": [os.fsdecode(b"--text=\xff")]}))
    assert read_manifest(tmp_path).config == {"arguments": [r"--text=\udcff"]}
