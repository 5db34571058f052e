"""Completes the manifest of a script's run from the exit records that its ranks leave in the run's folder.

A script's ranks end at any time and in any order, and some may never step. Each rank that ends leaves a record and
writes the manifest from the records so far; the last one of all ranks removes the records.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from perfkit.capture.recording.manifest_writer import utc_now
from perfkit.schema.manifest import RankRecord, StepKind, World
from perfkit.storage.run_folder import list_files, read_manifest, write_manifest
from perfkit.util.atomic_write import atomic_write

UNKNOWN_FIELDS: Final = {
    "batch_size": "the script does not report it",
    "loss": "the script does not report it",
    "load_ns": "only the trace shows the loading of data",
    "parameters": "the model is the script's own",
}
"""Fields of a script's manifest that stay empty, and why."""

_RECORD_NAME: Final = ".rank{}.left"
_LOCK_NAME: Final = ".closing"
_LOCK_TIMEOUT_S: Final = 5.0
"""How long a rank waits for another one that writes the manifest."""


class _RankExitRecord(Struct, frozen=True, kw_only=True):
    """What a rank leaves in the run's folder when its script has ended."""

    record: RankRecord
    kinds: list[StepKind]


def write_exit_record(folder: Path, record: RankRecord, kinds: list[StepKind]) -> None:
    """Leave this rank's record in the run's folder.

    Raises:
        StoreError: The record cannot be written.
    """
    exit_record = _RankExitRecord(record=record, kinds=kinds)
    with atomic_write(folder / _RECORD_NAME.format(record.rank)) as stream:
        stream.write(msgspec.json.encode(exit_record))


def remove_exit_records(folder: Path) -> None:
    """Remove the records of all ranks: the run has failed."""
    for path in _record_paths(folder):
        path.unlink(missing_ok=True)


def assemble_manifest(folder: Path, world_size: int, launcher: str) -> bool:
    """Write the manifest as "completed" with the ranks that have ended by now.

    Another rank may never step, and so never end its recording: the manifest must not wait for it.

    Returns:
        Whether this rank is the last of all.

    Raises:
        StoreError: The manifest cannot be read or written.
    """
    lock = folder / _LOCK_NAME
    if not _acquire(lock):
        return False
    try:
        paths = _record_paths(folder)
        if not paths:  # a rank that ended at the same time was the last
            return False
        exit_records = [msgspec.json.decode(path.read_bytes(), type=_RankExitRecord) for path in paths]
        _write_completed(folder, sorted(exit_records, key=lambda ended: ended.record.rank), world_size, launcher)
        if len(paths) < world_size:
            return False
        for path in paths:
            path.unlink()
    finally:
        lock.unlink()
    return True


def _record_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob(_RECORD_NAME.format("*")))


def _acquire(lock: Path) -> bool:
    """Create the file `lock` once no other rank has it; returns whether that was possible in time."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            lock.touch(exist_ok=False)
        except FileExistsError:
            time.sleep(0.01)
        else:
            return True
    return False


def _write_completed(folder: Path, exit_records: Sequence[_RankExitRecord], world_size: int, launcher: str) -> None:
    before = read_manifest(folder)
    records, world, unknown = [ended.record for ended in exit_records], before.world, dict(UNKNOWN_FIELDS)
    if len(records) == world_size:
        records, world = place_records(records, launcher)
    else:
        unknown["ranks"] = "some ranks had not ended, or had never completed a step, when this was written"
    manifest = msgspec.structs.replace(
        before,
        unknown=unknown,
        state="completed",
        finished_at=utc_now().isoformat(timespec="seconds"),
        world=world,
        step_kinds=min((ended.kinds for ended in exit_records), key=len),
        ranks=records,
        files=list_files(folder),
    )
    write_manifest(folder, manifest)


def place_records(records: Sequence[RankRecord], launcher: str) -> tuple[list[RankRecord], World]:
    """Return the records with local and node ranks, and the world: only the records of all ranks show them."""
    hosts = list(dict.fromkeys(record.host for record in records))
    by_host = {host: [record.rank for record in records if record.host == host] for host in hosts}
    placed = [
        msgspec.structs.replace(
            record, local_rank=by_host[record.host].index(record.rank), node_rank=hosts.index(record.host)
        )
        for record in records
    ]
    sizes = [len(by_host[host]) for host in hosts]
    return placed, World(world_size=len(records), nodes=len(hosts), launcher=launcher, local_world_sizes=sizes)
