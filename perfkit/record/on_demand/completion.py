"""Finishes a capture: its manifest, and the name under which it is found. Any rank does so that is the last."""

import contextlib
import re
import shutil
from pathlib import Path

from perfkit.errors import StoreError
from perfkit.record.on_demand.mailbox import Done, Mailbox, Request, Slot
from perfkit.records.manifest import CaptureRecord, RunManifest
from perfkit.storage.run_folder import MANIFEST_NAME, list_files, read_manifest, write_manifest


def complete(slot: Slot, *, absent: str | None = None) -> Path | None:
    """Finish a capture once all of its ranks are done.

    Args:
        absent: Finish it without the ranks that are not done, for this reason.

    Returns:
        Its folder, if this process has finished it.

    Raises:
        StoreError: The manifest cannot be written.
    """
    plan, request = slot.plan(), slot.request()
    if plan is None or request is None or request.identifier != plan.identifier:
        return None
    if absent is None and not slot.ranks_with("done") >= set(plan.ranks):
        return None
    done = slot.done(plan)
    missing = dict.fromkeys(set(plan.ranks) - done.keys(), absent or "what it has recorded cannot be read")
    if missing and absent is None:  # another process is finishing it
        return None
    problems = {rank: one.problem for rank, one in done.items() if one.problem is not None} | missing
    if not any(one.steps for one in done.values()):
        _give_up(slot, request, {str(rank): problem for rank, problem in sorted(problems.items())})
        return None
    record = CaptureRecord(
        condition=request.condition,
        reason=request.reason,
        first_step=plan.first_step,
        steps=plan.steps,
        ranks=plan.ranks,
        asked=request.ranks,
        problems=dict(sorted(problems.items())),
    )
    if not (slot.folder / MANIFEST_NAME).exists() and not _write_manifest(slot, record, done):
        return None
    return _publish(slot)


def _write_manifest(slot: Slot, record: CaptureRecord, done: dict[int, Done]) -> bool:
    """Write the manifest, and remove what is not the capture's; returns False if another process was quicker.

    A rank and the process that asked for the capture may finish it at once: what one does renames the folder, or
    removes the temporary file of the other.
    """
    try:
        _remove_of_others(slot, record.ranks)
        write_manifest(slot.folder, _manifest(slot, record, done))
    except (StoreError, FileNotFoundError):
        if not (slot.folder / MANIFEST_NAME).exists() and slot.exists():  # in this order: it is renamed at any time
            raise
        return False
    return True


def _manifest(slot: Slot, record: CaptureRecord, done: dict[int, Done]) -> RunManifest:
    """Return the manifest: that of the run, with what was measured in the captured steps."""
    run = read_manifest(slot.run_folder)
    records = [one.record for _, one in sorted(done.items()) if one.record is not None]
    kinds = max((one.kinds for one in done.values()), key=len)
    common = min((len(record.step_wall_ns) for record in records), default=0)
    unknown = {name: why for name, why in run.unknown.items() if name != "ranks"}
    return RunManifest(
        run=slot.target.name,
        state="completed",
        workload=run.workload,
        source=run.source,
        started_at=run.started_at,
        config=run.config,
        versions=run.versions,
        commit=run.commit,
        backend=run.backend,
        device=run.device,
        world=run.world,
        mesh=run.mesh,
        batch_size=run.batch_size,
        injections=run.injections,
        step_kinds=kinds[:common],
        ranks=records,
        unknown=unknown,
        files=list_files(slot.folder),
        capture=record,
    )


def _remove_of_others(slot: Slot, ranks: list[int]) -> None:
    """Remove what other ranks have left: they were writing a trace while the capture that had the number ended."""
    for path in slot.folder.glob("rank*"):
        rank = re.match(r"rank(\d{1,9})\.", path.name)
        if rank is not None and int(rank[1]) not in ranks:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _give_up(slot: Slot, request: Request, reasons: dict[str, str]) -> None:
    """Report why nothing was recorded to the process that requested it."""
    if request.condition is None:
        with contextlib.suppress(StoreError):  # withdrawn meanwhile
            slot.write(".nothing.json", reasons)
    else:
        slot.remove()
        Mailbox(slot.run_folder).remove_if_over()


def _publish(slot: Slot) -> Path | None:
    """Give the capture its name; returns None if another process was quicker.

    Its messages are removed after that: without them, nobody could finish it if this process were killed in between.
    """
    try:
        slot.folder.rename(slot.target)
    except OSError:
        return None
    for path in slot.target.glob(".*"):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    Mailbox(slot.run_folder).remove_if_over()
    return slot.target
