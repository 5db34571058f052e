"""The runs that the ranks of `perfkit run -n` have begun: their parent closes those that no rank could close.

A rank that is killed, or ends where no code of perfkit's runs, leaves a run that would count as running for ever. The
ranks note the folders of their runs beside the file through which they find each other. Without torch: the parent does
not import it.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perfkit.errors import StoreError
from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE
from perfkit.record.lifecycle.first_failure import read_first_failure
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import claim_failure, fail, read_failure, read_manifest

_NAME: Final = "runs"
_END: Final = b"\0"
"""Ends each path in the file: a path may contain anything else."""
_TEMPORARY: Final = re.compile(r"\.{1,2}(?:captures|closing.*|explains|hang[.\d].*|(?:rank\d+|run)\..+)", re.DOTALL)
"""What ranks leave in the folder of a run only while they run."""


def note_run(folder: Path) -> None:
    """Note a run's folder for the parent; does nothing if there is no parent, or nothing can be written."""
    rendezvous = os.environ.get(RENDEZVOUS_VARIABLE)
    if rendezvous is None:
        return
    with contextlib.suppress(OSError), Path(rendezvous).with_name(_NAME).open("ab") as stream:
        stream.write(os.fsencode(folder.resolve()) + _END)


def close_runs(notes: Path, codes: Sequence[int | None], reason: str | None) -> None:
    """Mark the runs that are still running as failed, and remove what ranks leave there only while they run.

    All ranks have ended. Does nothing if all have ended well.

    Args:
        codes: Exit codes of the ranks; None of those that the parent has ended.
        reason: Why the parent has ended them; None if one failed by itself.
    """
    if reason is None and not any(codes):
        return
    for folder in _noted(notes):
        with contextlib.suppress(StoreError, OSError):  # removed, or the disk is full: a rank has said what failed
            _close(folder, _find_cause(notes, codes, reason))


def name_cause(notes: Path, codes: Sequence[int | None]) -> None:
    """Record why the runs have failed, unless a rank has: before the parent ends the ranks that are left.

    Each of those would otherwise record, as the first, that a signal has ended it.
    """
    for folder in _noted(notes):
        with contextlib.suppress(StoreError, OSError):
            if read_manifest(folder).state == "running":
                claim_failure(folder, _find_cause(notes, codes, None))


def _noted(notes: Path) -> list[Path]:
    try:
        names = (notes / _NAME).read_bytes().split(_END)
    except OSError:
        return []
    return [Path(os.fsdecode(name)) for name in names if name]


def _find_cause(notes: Path, codes: Sequence[int | None], reason: str | None) -> Failure:
    first = read_first_failure(notes)
    if reason is not None:
        return Failure(rank=0, message=reason)
    if first is not None:
        return Failure(rank=first.rank, message=first.line.removeprefix(f"rank {first.rank}: "))
    # Of several, one that a signal has ended comes first: the others may have failed because of it.
    _, rank, code = min((code > 0, rank, code) for rank, code in enumerate(codes) if code)
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return Failure(rank=rank, message=how)


def _close(folder: Path, failure: Failure) -> None:
    manifest = read_manifest(folder)
    if manifest.state == "completed":
        return
    if not claim_failure(folder, failure):
        failure = read_failure(folder) or failure
    remove_temporary(folder)
    if manifest.finished_at is None:
        fail(folder, failure, {})


def remove_temporary(folder: Path) -> None:
    """Remove what ranks leave in the folder of a run only while they run: all have ended, or are about to.

    Raises:
        OSError: The folder cannot be read.
    """
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            with contextlib.suppress(OSError):  # the others can be removed all the same
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
