"""Which rank of a script failed first: under `perfkit run -n` the parent says it, once no rank has more to say.

The rank leaves the line beside the file by which the ranks find each other. Without torch: a script may fail before it
imports it.
"""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.capture.distributed.launcher_env import RENDEZVOUS_VARIABLE
from perfkit.errors import StoreError
from perfkit.util.atomic_write import atomic_write

_NAME: Final = "failure"


class FirstFailure(NamedTuple):
    """What the parent says at the end."""

    rank: int
    line: str


def write_first_failure(word: FirstFailure, *, first: bool) -> None:
    """Leave a line for the parent; without effect where there is none.

    Args:
        word: Rank and line.
        first: Whether this rank is known to have failed first; else it is if no other has left its line.
    """
    rendezvous = os.environ.get(RENDEZVOUS_VARIABLE)
    if rendezvous is None:
        return
    path = Path(rendezvous).with_name(_NAME)
    text = f"{word.rank} {word.line}"
    with contextlib.suppress(OSError, StoreError):  # the parent has gone, or there is no room: it names the exit code
        if not first:
            with path.open("x", encoding="utf-8") as stream:
                stream.write(text)
            return
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def read_first_failure(folder: Path) -> FirstFailure | None:
    """Return what the rank that failed first has left in the parent's temporary folder; None if none has."""
    try:
        rank, _, line = (folder / _NAME).read_text(encoding="utf-8").partition(" ")
    except (OSError, UnicodeDecodeError):
        return None
    return FirstFailure(int(rank), line) if rank.isdecimal() else None
