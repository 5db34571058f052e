"""A small process per host that outlives its ranks: reports a rank that was killed, and ends ranks that hang.

A launcher may kill all ranks milliseconds after one has died, without a message, and some launchers wait for a stopped
rank for ever. So the first rank of a host starts a watchdog in a separate session, out of the launcher's reach. It
watches the ranks through pidfds (on Linux; elsewhere there is no watchdog), and recognises an orderly end by
`run.json`, which is `completed` or `failed` by then. This module does not import torch, so that the watchdog is cheap.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perfkit.base.process import child_python
from perfkit.errors import StoreError
from perfkit.record.distributed.launcher_env import FAILURE_GRACE_S
from perfkit.record.lifecycle.local_launch import is_child
from perfkit.record.messages import print_error
from perfkit.record.process_stat import PARENT, ProcessIdentity, stat_fields
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import claim_failure, fail, read_failure, read_manifest

SHUTDOWN_TIMEOUT_S: Final = FAILURE_GRACE_S + 3.0
"""How long the ranks of a failed run may take to end by themselves."""

_OTHER_HOSTS_S: Final = 0.5

_DISMISSED: Final = b"done"
_TEMPORARY: Final = "--temporary"

_GONE: Final = "was killed, or ended without an error message"
_ALONE: Final = f"{_GONE} (see the system log: out of memory?)"
_TOGETHER: Final = f"{_GONE}, and so did its launcher: which was first is not known"
_AFTER: Final = (
    "was ended after its launcher, which ended first: was that killed, was its terminal closed, or did a rank on "
    "another host end?"
)
_SOON_S: Final = 10.0
"""How long after their launcher ranks end because of it: most launchers kill them at once, some let them go on."""
_LAUNCHERS: Final = frozenset({"mpiexec", "mpiexec.hydra", "mpirun", "orterun", "prterun", "torchrun"})
"""Names of processes that start ranks on their own host, and that end them when they are ended themselves."""


class Watchdog:
    """The watchdog as its ranks use it: starts the process, and ends it when the run has completed.

    Args:
        identities: Every rank's `process_identity()`.
        temporary: Whether the folder exists only to end the ranks, so that the watchdog removes it after a failure.
    """

    def __init__(self, rank: int, identities: list[ProcessIdentity], folder: Path, *, temporary: bool = False) -> None:
        namespace = identities[rank].host
        local_pids = {other: one.pid for other, one in enumerate(identities) if one.host == namespace}
        self._process: subprocess.Popen[bytes] | None = None
        if namespace and len(identities) > 1 and rank == min(local_pids):
            ranks = [f"{other}:{pid}" for other, pid in local_pids.items()]
            self._process = subprocess.Popen(
                [*child_python(__name__, "main"), str(folder), *[_TEMPORARY] * temporary, *ranks],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        if self._process is not None:
            self._process.communicate(_DISMISSED)


class LauncherEnd:
    """The launchers among the ancestors of a watchdog, which is the child of a rank."""

    def __init__(self) -> None:
        self.descriptors = _open_launchers()
        self._together = False
        self._ended_at: float | None = None

    def note(self, ready: Sequence[int], ranks: Sequence[int]) -> None:
        """Note what has ended at once: `ready`, the pidfds of processes, of which `ranks` are those of ranks."""
        if self._ended_at is None and not self.descriptors.isdisjoint(ready):
            self._ended_at = time.monotonic()
            self._together = not set(ranks).isdisjoint(ready)

    def message(self) -> str:
        if self._ended_at is None or time.monotonic() - self._ended_at > _SOON_S:
            return _ALONE
        return _TOGETHER if self._together else _AFTER


def _open_launchers() -> set[int]:
    found = set[int]()
    pid = os.getppid()
    with contextlib.suppress(OSError, ValueError):  # no /proc, or a process that is hidden or has ended
        while pid > 1:
            if Path(f"/proc/{pid}/comm").read_text(errors="replace").strip() in _LAUNCHERS:
                found.add(os.pidfd_open(pid))
            pid = int(stat_fields(pid)[PARENT])
    return found


def watch_ranks(folder: Path, ranks: dict[int, int], *, temporary: bool = False) -> None:
    watched, gone = _open(ranks)
    poll = select.poll()
    launchers = LauncherEnd()
    for descriptor in (0, *watched, *launchers.descriptors):
        poll.register(descriptor, select.POLLIN)
    deadline: float | None = None
    while watched:
        ready = [descriptor for descriptor, _ in poll.poll(_OTHER_HOSTS_S * 1000)]
        if 0 in ready and os.read(0, len(_DISMISSED)) == _DISMISSED:
            return
        launchers.note(ready, list(watched))
        for descriptor in ready:  # the process has ended; if 0, the rank that started this one
            poll.unregister(descriptor)
            if descriptor in watched:
                gone.append(watched.pop(descriptor))
        if gone and deadline is None:
            with contextlib.suppress(StoreError):  # the folder is gone, or full: ranks that hang must end all the same
                _record_failure(
                    folder, gone, launchers.message(), "" if temporary else "; the cycles written before are kept"
                )
        if deadline is None and (gone or read_failure(folder) is not None):
            deadline = time.monotonic() + SHUTDOWN_TIMEOUT_S
        if deadline is not None and time.monotonic() > deadline:
            _end(list(watched))
    if temporary:
        shutil.rmtree(folder, ignore_errors=True)
        return
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


def _record_failure(folder: Path, gone: list[int], how: str, kept: str) -> None:
    """Record and report which ranks have ended, and `how`, and what is `kept`, unless the run has recorded its end."""
    if read_manifest(folder).state != "running":
        return
    who = f"ranks {', '.join(map(str, sorted(gone)))}: each" if len(gone) > 1 else f"rank {gone[0]}:"
    failure = Failure(rank=min(gone), message=how)
    if read_failure(folder) is not None or not claim_failure(folder, failure):
        return
    fail(folder, failure, {})
    if not is_child():  # otherwise the parent reports it, with the signal
        print_error(f"{who} {how}{kept}")


def _end(descriptors: list[int]) -> None:
    """Kill ranks that hang: a stopped process reacts to no other signal."""
    for descriptor in descriptors:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)  # type: ignore[attr-defined,unused-ignore]


def _close(folder: Path, ranks: list[int]) -> None:
    """Remove partial files; write the manifest as "failed" if a rank of this host was killed before it could."""
    for rank in ranks:
        for partial in folder.glob(f".rank{rank}.*"):
            if partial.is_dir() and not partial.is_symlink():
                shutil.rmtree(partial, ignore_errors=True)  # where torch wrote a trace
            else:
                partial.unlink(missing_ok=True)
    failure = read_failure(folder)
    # The state does not help: it is read as "failed" as soon as there is a failure.
    if failure is not None and failure.rank in ranks and read_manifest(folder).finished_at is None:
        fail(folder, failure, {})


def main() -> None:
    """Watch the ranks that the command line names: the folder, perhaps --temporary, then RANK:PID of each rank."""
    folder, *ranks = sys.argv[1:]
    pairs = [text.split(":") for text in ranks if text != _TEMPORARY]
    watch_ranks(Path(folder), {int(rank): int(pid) for rank, pid in pairs}, temporary=_TEMPORARY in ranks)
