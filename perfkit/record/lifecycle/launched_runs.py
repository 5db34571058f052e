"""What the ranks of `perfkit run -n` leave for their parent: which runs they have begun, and which rank failed first.

A rank that is killed, or ends where no code of perfkit's runs, leaves a run that would count as running for ever: the
parent closes it. The first failure of a script's ranks it reports after all their output. The notes are beside the file
through which the ranks find each other. Without torch: a script may fail before it imports torch, and the parent does
not import it.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.base.atomic_write import atomic_write
from perfkit.errors import StoreError
from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import claim_failure, fail, read_failure, read_manifest

_FAILURE: Final = "failure"
_ENDS_OTHERS: Final = "ends others"
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
    """Remove what ranks leave in the folder of a run only while they run: all have ended, or are about to."""
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            with contextlib.suppress(OSError):  # the others can be removed all the same
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


class FirstFailure(NamedTuple):
    """The rank that failed first, and the line that the parent prints at the end."""

    rank: int
    line: str
    diagnosis: str = ""
    """Which ranks waited for which, in one line; empty if unknown."""
    ends_others: bool = False
    """Whether the rank has then ended the others, by a signal where needed: their ends are no causes."""


def write_first_failure(failure: FirstFailure, *, first: bool) -> None:
    """Write the failure for the parent; does nothing if there is no parent, or the file cannot be written.

    Args:
        first: Whether this rank is known to have failed first; otherwise it counts as first if no other rank has
            written its failure.
    """
    rendezvous = os.environ.get(RENDEZVOUS_VARIABLE)
    if rendezvous is None:
        return
    path = Path(rendezvous).with_name(_FAILURE)
    text = f"{failure.rank} {failure.line}\n{failure.diagnosis}\n{_ENDS_OTHERS * failure.ends_others}"
    with contextlib.suppress(OSError, StoreError):  # the parent is gone, or the disk is full: it reports the exit code
        if not first:
            with path.open("x", encoding="utf-8") as stream:
                stream.write(text)
            return
        with atomic_write(path) as stream:
            stream.write(text.encode())


def read_first_failure(folder: Path) -> FirstFailure | None:
    """Return the failure that was written into the parent's temporary folder; None if there is none."""
    try:
        rank, _, line = (folder / _FAILURE).read_text(encoding="utf-8").partition(" ")
    except (OSError, UnicodeDecodeError):
        return None
    line, diagnosis, ends = (*line.split("\n"), "", "")[:3]
    return FirstFailure(int(rank), line, diagnosis, ends == _ENDS_OTHERS) if rank.isdecimal() else None
