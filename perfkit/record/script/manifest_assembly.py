"""Completes the manifest of a script's run from the exit records that its ranks leave in the run's folder.

A script's ranks end at any time and in any order, and some may never step. Each rank that ends leaves a record and
writes the manifest from the records so far; the last one of those that have stepped completes it, and removes the
records. A rank also does so when its schedule is over: it may end where no code of perfkit's runs (by a signal, in C).
"""

import contextlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import torch
from msgspec import Struct

from perfkit.base.atomic_write import atomic_write
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.distributed.rank_group import backend_of
from perfkit.record.distributed.topology import Topology, name_device, own_cores
from perfkit.record.hangs.worker_stacks import remove_requests
from perfkit.record.recording.manifest_writer import utc_now
from perfkit.record.recording.throughput import StepWork, measure_throughput
from perfkit.record.script.rank_marks import (
    ended_ranks,
    is_of_ended,
    joined_ranks,
    process_mark,
    remove_mark,
)
from perfkit.record.script.samples import UNKNOWN_SAMPLES, StepSamples
from perfkit.records.manifest import Failure, RankRecord, RunManifest, StepKind, Throughput, World
from perfkit.storage.run_folder import claim_failure, list_files, read_manifest, write_manifest

_NO_SAMPLES: Final = "the script does not report it"
UNKNOWN_FIELDS: Final = {
    "batch_size": _NO_SAMPLES,
    "loss": "the script does not report it",
    "load_ns": "only the trace shows the loading of data",
    "parameters": "the model is the script's own",
}
"""Fields of a script's manifest that stay empty, and why."""

_RECORD_NAME: Final = ".rank{}.left"
_LOCK_NAME: Final = ".closing"


class RankExitRecord(Struct, frozen=True, kw_only=True):
    """What a rank leaves in the run's folder when its script has ended, or its schedule is over."""

    record: RankRecord
    kinds: list[StepKind]
    samples: StepSamples = StepSamples()
    ended: bool = True
    """Whether the script has ended, without an error; otherwise its schedule is over."""
    code: int = 0
    """The exit code with which `os._exit` has ended the script; others are told as errors."""


def write_exit_record(
    folder: Path,
    record: RankRecord,
    kinds: list[StepKind],
    samples: StepSamples = UNKNOWN_SAMPLES,
    *,
    ended: bool = True,
    code: int = 0,
) -> None:
    """Leave this rank's record in the run's folder."""
    exit_record = RankExitRecord(record=record, kinds=kinds, samples=samples, ended=ended, code=code)
    with atomic_write(folder / _RECORD_NAME.format(record.rank)) as stream:
        stream.write(msgspec.json.encode(exit_record))


def remove_exit_records(folder: Path) -> None:
    """Remove the records and marks of all ranks, and what they asked each other: the run has ended."""
    for path in _record_paths(folder):
        path.unlink(missing_ok=True)
    for rank in joined_ranks(folder):
        remove_mark(folder, rank)
    remove_requests(folder)


def read_exit_records(folder: Path) -> list[RankExitRecord]:
    records = []
    for path in _record_paths(folder):
        with contextlib.suppress(OSError, msgspec.DecodeError):  # removed meanwhile
            records.append(msgspec.json.decode(path.read_bytes(), type=RankExitRecord))
    return sorted(records, key=lambda ended: ended.record.rank)


def assemble_manifest(folder: Path, world_size: int, launcher: str) -> bool:
    """Write the manifest with the ranks that have left a record by now, unless another rank is writing it.

    Nobody waits: the rank that writes looks afterwards for records that have come meanwhile, and writes it again.

    It is "completed" once every rank that has stepped has ended, "failed" if one has not ended well. A rank that never
    steps is not waited for: if it does so for the first time afterwards, its record is added later.

    Returns:
        Whether this rank has completed it; what it was written from is removed.

    Raises:
        StoreError: The manifest cannot be read or written.
    """
    lock, complete = folder / _LOCK_NAME, False
    while _acquire(lock):
        try:
            before = _state_of_folder(folder)
            complete = _write(folder, world_size, launcher) or complete
        finally:
            lock.unlink(missing_ok=True)
        if not _record_paths(folder) or _state_of_folder(folder) == before:
            break
    return complete


def _state_of_folder(folder: Path) -> tuple[dict[str, tuple[int, int]], set[int]]:
    """Return what changes with every record that a rank leaves, and every rank that joins or leaves without one."""
    records = {}
    for path in _record_paths(folder):
        with contextlib.suppress(OSError):  # removed meanwhile
            status = path.stat()
            records[path.name] = (status.st_ino, status.st_mtime_ns)
    return records, joined_ranks(folder)


def _record_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob(_RECORD_NAME.format("*")))


def _acquire(lock: Path) -> bool:
    """Create the file `lock`, unless another rank has it; returns whether this one has it now."""
    for _ in range(2):  # the second time after the lock of a rank that was killed
        try:
            with lock.open("xb", buffering=0) as stream, contextlib.suppress(OSError):  # full: it has the lock
                stream.write(process_mark())
        except FileExistsError:
            _release_if_killed(lock)
        else:
            return True
    return False


def _release_if_killed(lock: Path) -> None:
    """Remove a lock whose rank was killed while it had it: nobody else would."""
    with contextlib.suppress(OSError):  # removed meanwhile
        mark = lock.read_bytes()
        if not is_of_ended(mark):
            return
        taken = lock.with_name(f"{lock.name}.{os.getpid()}")
        lock.rename(taken)
        try:
            if taken.read_bytes() != mark:  # another rank was faster, and has the lock
                os.link(taken, lock)
        finally:
            taken.unlink()


def _write(folder: Path, world_size: int, launcher: str) -> bool:
    """Write the manifest, and remove what it was written from if it is complete; returns whether it is."""
    gone = set(ended_ranks(folder, -1))  # before the records are read
    exit_records = read_exit_records(folder)
    if not exit_records:  # a rank that ended at the same time was the last
        return False
    left = {each.record.rank for each in exit_records}
    # Some may have ended by a signal after their schedule was over; those have left their last record.
    ended = all(each.ended or each.record.rank in gone for each in exit_records)
    complete = joined_ranks(folder) <= left and ended
    _update(folder, exit_records, world_size, launcher, complete=complete)
    if complete or world_size == 1:
        for each in exit_records:
            (folder / _RECORD_NAME.format(each.record.rank)).unlink(missing_ok=True)
            remove_mark(folder, each.record.rank)
        remove_requests(folder)
    return complete


def _update(
    folder: Path, exit_records: Sequence[RankExitRecord], world_size: int, launcher: str, *, complete: bool
) -> None:
    before = read_manifest(folder)
    if before.state == "failed":
        return
    failure = _failure_of_ended(exit_records) if complete else None
    if failure is not None and not claim_failure(folder, failure):
        return
    ended: Literal["completed", "failed"] = "completed" if failure is None else "failed"
    records, kinds = _merge(before, exit_records)
    world, unknown = before.world, dict(UNKNOWN_FIELDS)
    if len(records) == world_size:
        records, world = place_records(records, launcher)
    else:
        unknown["ranks"] = "some ranks had not ended, or had never completed a step, when this was written"
    samples = _samples_of(exit_records) if len(records) == world_size else StepSamples(reason=unknown["ranks"])
    if samples.count is None:
        unknown["batch_size"] = samples.reason or _NO_SAMPLES
    else:
        del unknown["batch_size"]
    manifest = msgspec.structs.replace(
        before,
        unknown=unknown,
        batch_size=samples.count,
        batch_size_from=samples.source,
        throughput=_throughput(kinds, records, samples.count),
        state=ended if complete else before.state,
        failure=failure,
        finished_at=utc_now().isoformat(timespec="seconds") if complete else before.finished_at,
        world=world,
        step_kinds=kinds,
        ranks=records,
        files=list_files(folder),
    )
    write_manifest(folder, manifest)


def _samples_of(exit_records: Sequence[RankExitRecord]) -> StepSamples:
    """Return the samples of a step that all ranks have; unknown if they differ."""
    found = [each.samples for each in exit_records]
    counts = [each.count for each in found]
    if None in counts or len(set(counts)) == 1:
        return next((each for each in found if each.count is None), found[0])
    return StepSamples(reason=f"ranks have different numbers: {', '.join(map(str, counts))}")


def _throughput(kinds: Sequence[StepKind], records: Sequence[RankRecord], count: int | None) -> Throughput | None:
    if count is None:
        return None
    no_peak = "the FLOPs of a script are not counted"
    return measure_throughput(kinds, records, StepWork(batch_size=count), no_peak, reading=False)


def _failure_of_ended(exit_records: Sequence[RankExitRecord]) -> Failure | None:
    """Return the failure of a run whose ranks have all ended; None if all have ended well."""
    for each in exit_records:
        if each.code:
            return Failure(rank=each.record.rank, message=f"the script ended with exit code {each.code}")
    for each in exit_records:
        if not each.ended:
            how = "was killed, or ended without a message, after the schedule was over"
            return Failure(rank=each.record.rank, message=how)
    return None


def fields_of_failed(
    folder: Path,
    record: RankRecord,
    kinds: list[StepKind],
    left_before: Sequence[RankExitRecord] = (),
    samples: StepSamples = UNKNOWN_SAMPLES,
) -> dict[str, Any]:
    """Return the fields of the manifest that this rank writes because it failed, with what the other ranks have left.

    Args:
        left_before: The records that were there before the failure was claimed: a rank that fails afterwards may have
            removed them by now.
        samples: Of a step of this rank.
    """
    own = RankExitRecord(record=record, kinds=kinds)
    last = {each.record.rank: each for each in [*left_before, *read_exit_records(folder), own]}
    before = read_manifest(folder)
    records, common = _merge(before, list(last.values()))
    fields: dict[str, Any] = {"step_kinds": common, "unknown": before.unknown, "batch_size": samples.count}
    fields["batch_size_from"] = samples.source
    if len(records) == before.world.world_size:
        records, fields["world"] = place_records(records, before.world.launcher)
        is_known = samples.count is not None
        fields["unknown"] = {name: why for name, why in UNKNOWN_FIELDS.items() if name != "batch_size" or not is_known}
    return {**fields, "ranks": records}


def _merge(before: RunManifest, exit_records: Sequence[RankExitRecord]) -> tuple[list[RankRecord], list[StepKind]]:
    """Return the records of all ranks, those in the manifest included, and the kinds of the steps that all have."""
    ended = {each.record.rank for each in exit_records}
    earlier = [record for record in before.ranks if record.rank not in ended]
    records = sorted([*earlier, *(each.record for each in exit_records)], key=lambda record: record.rank)
    # All ranks follow the same schedule, as far as they have come; which steps are cold depends on their loaders, too.
    each_kinds = [before.step_kinds, *(each.kinds for each in exit_records)]
    longest = max(each_kinds, key=lambda own: len(own))
    cold = {step for own in each_kinds for step, kind in enumerate(own) if kind == "cold"}
    kinds: list[StepKind] = ["cold" if k in cold else kind for k, kind in enumerate(longest)]
    common = min([*(len(each.kinds) for each in exit_records), *(len(record.step_wall_ns) for record in earlier)])
    return records, kinds[:common]


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


def script_topology(info: RankInfo, device: torch.device) -> Topology:
    """Return where this rank runs; all hosts are taken to have as many ranks as this one."""
    sizes = [info.local_world_size] * (info.world_size // info.local_world_size)
    return Topology(
        device=str(device),
        device_name=name_device(device),
        backend=backend_of(device.type),
        host=socket.gethostname(),
        threads=torch.get_num_threads(),
        # A rank that is bound to some cores does not know those of the other ranks.
        node_cores=os.cpu_count() if len(own_cores()) == os.cpu_count() else None,
        local_rank=info.local_rank,
        node_rank=info.node_rank or 0,
        world=World(world_size=info.world_size, nodes=len(sizes), launcher=info.launcher, local_world_sizes=sizes),
    )
