"""A small process a host that outlives its ranks: says what a rank that was killed cannot, and ends those that hang.

A launcher may kill all ranks milliseconds after one has died, without a word, and some wait for a stopped rank for
ever. So the first rank of a host starts a witness in a session of its own, which no launcher knows. It watches the
ranks by their pidfds (Linux; elsewhere there is no witness), and knows an orderly end by `run.json`, which is
`completed` or `failed` by then. This module never imports torch: the witness is cheap.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from perfkit.capture.distributed.launcher_env import FAILURE_GRACE_S
from perfkit.capture.lifecycle.local_launch import is_child
from perfkit.capture.messages import print_error
from perfkit.errors import StoreError
from perfkit.schema.manifest import Failure
from perfkit.storage.run_folder import claim_failure, fail, read_failure, read_manifest

SHUTDOWN_TIMEOUT_S: Final = FAILURE_GRACE_S + 3.0
"""How long the ranks of a failed run have to end by themselves."""

_POLL_S: Final = 0.5
"""How often to look whether a rank of another host has failed."""

_DISMISSED: Final = b"done"
_GONE: Final = "was killed, or ended without a word (see the system's log: out of memory?)"


def process_identity() -> tuple[str, int]:
    """Return where this process can be watched from, the same for all that see each other, and its number there.

    The place is empty where nobody can watch.
    """
    if not hasattr(os, "pidfd_open"):
        return "", 0
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}", os.getpid()
    except OSError:  # no /proc
        return "", 0


class Watchdog:
    """The ranks' end of a witness: starts it, and dismisses it when the run has ended well.

    Args:
        rank: This rank.
        places: Every rank's `process_identity()`.
        folder: The run's folder.
    """

    def __init__(self, rank: int, places: list[tuple[str, int]], folder: Path) -> None:
        place = places[rank][0]
        here = {other: pid for other, (name, pid) in enumerate(places) if name == place}
        self._process: subprocess.Popen[bytes] | None = None
        if place and len(places) > 1 and rank == min(here):
            ranks = [f"{other}:{pid}" for other, pid in here.items()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perfkit.capture.lifecycle.watchdog", str(folder), *ranks],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """End the witness: the run has ended well."""
        if self._process is not None:
            self._process.communicate(_DISMISSED)


def watch_ranks(folder: Path, ranks: dict[int, int]) -> None:
    """Watch the ranks of this host until they have ended, well or not.

    Args:
        folder: The run's folder.
        ranks: Process by rank.
    """
    watched, gone = _open(ranks)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    for descriptor in watched:
        poll.register(descriptor, select.POLLIN)
    deadline: float | None = None
    while watched:
        ready = [descriptor for descriptor, _ in poll.poll(_POLL_S * 1000)]
        if 0 in ready:
            if os.read(0, len(_DISMISSED)) == _DISMISSED:
                return
            poll.unregister(0)  # the rank that started this process has ended
        for descriptor in ready:
            if descriptor in watched:
                gone.append(watched.pop(descriptor))
                poll.unregister(descriptor)
        if gone and deadline is None:
            with contextlib.suppress(StoreError):  # the folder is gone, or full: what hangs must end all the same
                _record_failure(folder, gone)
        if deadline is None and (gone or read_failure(folder) is not None):
            deadline = time.monotonic() + SHUTDOWN_TIMEOUT_S
        if deadline is not None and time.monotonic() > deadline:
            _end(list(watched))
    with contextlib.suppress(StoreError):
        _close(folder, list(ranks))


def _open(ranks: dict[int, int]) -> tuple[dict[int, int], list[int]]:
    """Return the ranks by pidfd, and those that have ended already."""
    watched, gone = {}, []
    for rank, pid in ranks.items():
        try:
            watched[os.pidfd_open(pid)] = rank
        except ProcessLookupError:
            gone.append(rank)
    return watched, gone


def _record_failure(folder: Path, gone: list[int]) -> None:
    """Say which ranks have ended, unless the run itself has said why by now."""
    if read_manifest(folder).state != "running":
        return
    who = f"ranks {', '.join(map(str, sorted(gone)))}: each" if len(gone) > 1 else f"rank {gone[0]}:"
    failure = Failure(rank=min(gone), message=_GONE)
    if read_failure(folder) is not None or not claim_failure(folder, failure):
        return
    fail(folder, failure, {})
    if not is_child():  # else the parent says so, and knows the signal
        print_error(f"{who} {_GONE}; the cycles written before are kept")


def _end(descriptors: list[int]) -> None:
    """Kill what hangs: a stopped process takes no other signal."""
    for descriptor in descriptors:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)  # type: ignore[attr-defined,unused-ignore]


def _close(folder: Path, ranks: list[int]) -> None:
    """Write the manifest as "failed" where a rank of this host failed and was killed before it could; remove halves."""
    for rank in ranks:
        for half in folder.glob(f".rank{rank}.*"):
            half.unlink(missing_ok=True)
    failure = read_failure(folder)
    # The state is no sign: it is read as "failed" as soon as there is a failure.
    if failure is not None and failure.rank in ranks and read_manifest(folder).finished_at is None:
        fail(folder, failure, {})


def main() -> None:
    """Watch what the command line says: the folder, and RANK:PID of each rank."""
    folder, *ranks = sys.argv[1:]
    pairs = [text.split(":") for text in ranks]
    watch_ranks(Path(folder), {int(rank): int(pid) for rank, pid in pairs})


if __name__ == "__main__":
    main()
