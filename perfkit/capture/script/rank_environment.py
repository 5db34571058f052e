"""What torchrun tells the ranks of a script, and mpiexec and srun do not: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.

Without these, `init_process_group` of an ordinary script fails (`env://`). Rank 0 reserves a free port and leaves word
of it in the trace folder, a note a rank, which that rank removes. Neither MPI nor torch is asked: to load either before
the script does would change the script.
"""

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from perfkit.capture.distributed.host_address import own_address
from perfkit.capture.distributed.launch_id import launch_id
from perfkit.capture.distributed.launcher_env import RankInfo, detect_rank, find_launcher
from perfkit.capture.messages import print_warning
from perfkit.errors import LaunchEnvironmentError

VARIABLES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Where the user has set one of these, all are left to the user."""

_RENDEZVOUS_VARIABLES: Final = ("perfkit", "torchrun")
"""Launchers that tell all of it themselves."""
_POLL_S: Final = 0.02
_MOST_POLL_S: Final = 0.5
"""Thousands of ranks ask one file system."""

_given: set[str] = set()
_reserved: list[int] = []
"""Descriptors, which live as long as the process: a socket's object would warn at its end that it is open."""


def launcher_environment() -> Mapping[str, str]:
    """Return the environment without what this module has added: it would look like torchrun's."""
    return {name: value for name, value in os.environ.items() if name not in _given}


def launcher_rank() -> RankInfo:
    """Return this process's place by the launcher's variables; alone where they make no sense."""
    try:
        return detect_rank(launcher_environment())
    except LaunchEnvironmentError:
        return RankInfo()


def set_rank_environment(trace_dir: Path, timeout_ns: int) -> None:
    """Set the variables where a launcher has started several ranks and set none of them.

    Ranks that cannot agree (see `launch_id`), or do not, are left as the launcher has started them; the latter with a
    warning.

    Args:
        trace_dir: A folder that the ranks share.
        timeout_ns: How long to wait for rank 0's word.
    """
    launcher, info = find_launcher(os.environ), launcher_rank()
    if launcher is None or launcher.name in _RENDEZVOUS_VARIABLES or info.world_size == 1:
        return
    key = None if any(name in os.environ for name in VARIABLES) else launch_id(launcher, info)
    if key is None:
        return
    notes = trace_dir.resolve() / f".place-{launcher.name}-{key}"
    try:
        place = (
            _publish_endpoint(notes, info, timeout_ns) if info.rank == 0 else _read_endpoint(notes, info, timeout_ns)
        )
    except (LaunchEnvironmentError, OSError) as error:
        if info.rank <= 1:  # one says it: rank 0 if it is here
            print_warning(f"{error}; the script runs without {', '.join(VARIABLES)}")
        return
    if len(told := place.split()) == 2:
        _set(info, *told)


def _set(info: RankInfo, address: str, port: str) -> None:
    values = {
        "RANK": str(info.rank),
        "WORLD_SIZE": str(info.world_size),
        "LOCAL_RANK": str(info.local_rank),
        "LOCAL_WORLD_SIZE": str(info.local_world_size),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    for name, value in values.items():
        if name not in os.environ:
            os.environ[name] = value
            _given.add(name)


def _publish_endpoint(notes: Path, info: RankInfo, timeout_ns: int) -> str:
    """Leave a note for every other rank, all at once; return what it says.

    Raises:
        LaunchEnvironmentError: No other host reaches this one; the others find an empty note.
        OSError: The notes cannot be written.
    """
    try:
        place = f"{own_address(info)} {_reserve_port()}"
    except (LaunchEnvironmentError, OSError):
        _write(notes, info, "")
        raise
    _write(notes, info, place)
    threading.Thread(target=_warn_of_missing_ranks, args=(notes, timeout_ns), daemon=True).start()
    return place


def _write(notes: Path, info: RankInfo, text: str) -> None:
    draft = notes.with_name(f"{notes.name}.tmp")
    for stale in (draft, notes):
        shutil.rmtree(stale, ignore_errors=True)
    draft.mkdir(parents=True)
    for rank in range(1, info.world_size):
        (draft / str(rank)).write_text(text, encoding="utf-8")
    draft.rename(notes)


def _reserve_port() -> int:
    """Return a port that torch can listen on whenever the script asks for it, and nobody is given meanwhile.

    A bound socket keeps it from being handed out. As long as it does not listen, another one with SO_REUSEADDR may
    be bound to the same port and listen; torch's store has that option.
    """
    dual = socket.has_dualstack_ipv6()
    holder = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if dual:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    holder.bind(("", 0))
    port = int(holder.getsockname()[1])
    _reserved.append(holder.detach())
    return port


def _read_endpoint(notes: Path, info: RankInfo, timeout_ns: int) -> str:
    """Return what the note for this rank says, and remove it; the last to do so removes the folder.

    Raises:
        LaunchEnvironmentError: There is no note in time.
    """
    note = notes / str(info.rank)
    deadline, pause_s = time.monotonic() + timeout_ns / 1e9, _POLL_S
    while time.monotonic() < deadline:
        try:
            place = note.read_text(encoding="utf-8")
        except FileNotFoundError:
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _MOST_POLL_S)
            continue
        note.unlink()
        with contextlib.suppress(OSError):  # there are others' yet
            notes.rmdir()
        return place
    raise LaunchEnvironmentError(
        f"rank 0 has not left word in {notes.parent} within --timeout {timeout_ns / 1e9:g}s: it has not started, or "
        "does not see this folder"
    )


def _warn_of_missing_ranks(notes: Path, timeout_ns: int) -> None:
    """Say once the time is over which ranks have not started: the script's own wait for them may be much longer."""
    deadline = time.monotonic() + timeout_ns / 1e9
    while notes.is_dir() and time.monotonic() < deadline:
        time.sleep(_MOST_POLL_S)
    try:
        missing = sorted(int(note.name) for note in notes.iterdir())
    except (OSError, ValueError):  # it is gone, or the file system has put something of its own there
        return
    shutil.rmtree(notes, ignore_errors=True)  # nobody waits for them any more
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        print_warning(
            f"rank{'s' if len(missing) > 1 else ''} {shown} of the script did not start within --timeout "
            f"{timeout_ns / 1e9:g}s, or did not see {notes.parent}"
        )
