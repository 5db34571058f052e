"""The first failure of a script's ranks: under `perfkit run -n` the parent reports it, after all output of the ranks.

The rank writes the line next to the file through which the ranks find each other. Without torch: a script may fail
before it imports torch.
"""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.base.atomic_write import atomic_write
from perfkit.errors import StoreError
from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE

_NAME: Final = "failure"
_ENDS_OTHERS: Final = "ends others"


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
    path = Path(rendezvous).with_name(_NAME)
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
        rank, _, line = (folder / _NAME).read_text(encoding="utf-8").partition(" ")
    except (OSError, UnicodeDecodeError):
        return None
    line, diagnosis, ends = (*line.split("\n"), "", "")[:3]
    return FirstFailure(int(rank), line, diagnosis, ends == _ENDS_OTHERS) if rank.isdecimal() else None
