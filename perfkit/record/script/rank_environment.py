"""Sets the variables that torchrun sets, and mpiexec and srun do not: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.

Without these, `init_process_group` of an ordinary script fails (`env://`). Rank 0 reserves a free port and publishes
its address in the trace folder, in one file per rank, which that rank removes. Neither MPI nor torch is used: loading
either before the script does would change the script.
"""

import contextlib
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from perfkit.base.polling import SHARED_POLL_S, WATCH_S, wait_until
from perfkit.errors import LaunchEnvironmentError
from perfkit.record.distributed.host_address import own_address
from perfkit.record.distributed.known_launchers import find_launcher
from perfkit.record.distributed.launch_id import launch_id
from perfkit.record.distributed.launcher_env import RankInfo, detect_rank
from perfkit.record.messages import print_warning
from perfkit.record.own_threads import start_own_thread

VARIABLES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""If the user has set one of these, none is set here."""

_COMPLETE_LAUNCHERS: Final = ("perfkit", "torchrun")

_variables_set: set[str] = set()
_reserved_sockets: list[int] = []
"""File descriptors that stay open until the process ends: a socket object would warn about that."""


def launcher_environment() -> Mapping[str, str]:
    """Return the environment without the variables set here, which would look like torchrun's."""
    return {name: value for name, value in os.environ.items() if name not in _variables_set}


def launcher_rank() -> RankInfo:
    """Return this process's place from the launcher's variables; rank 0 of 1 if they are inconsistent."""
    try:
        return detect_rank(launcher_environment())
    except LaunchEnvironmentError:
        return RankInfo()


def set_rank_environment(trace_dir: Path, timeout_ns: int) -> None:
    """Set the variables if a launcher has started several ranks without any of them.

    Nothing is set if the ranks have no way to find each other (see `launch_id`), nor, with a warning, if they do not
    find each other in time.
    """
    launcher, info = find_launcher(os.environ), launcher_rank()
    if launcher is None or launcher.name in _COMPLETE_LAUNCHERS or info.world_size == 1:
        return
    identifier = None if any(name in os.environ for name in VARIABLES) else launch_id(launcher, info)
    if identifier is None:
        return
    folder = trace_dir.resolve() / f".endpoint-{launcher.name}-{identifier}"
    get_endpoint = _publish_endpoint if info.rank == 0 else _read_endpoint
    try:
        endpoint = get_endpoint(folder, info, timeout_ns)
    except (LaunchEnvironmentError, OSError) as error:
        if info.rank <= 1:  # one rank reports it, and rank 0 may be missing
            print_warning(f"{error}; the script runs without {', '.join(VARIABLES)}")
        return
    if len(address_and_port := endpoint.split()) == 2:  # else rank 0 has none, and reports why
        _set(info, *address_and_port)


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
            _variables_set.add(name)


def _publish_endpoint(folder: Path, info: RankInfo, timeout_ns: int) -> str:
    """Write a file with this host's address and a port for every other rank, all at once; returns its text.

    Raises:
        LaunchEnvironmentError: Other hosts cannot reach this one; the files are then empty.
        OSError: The files cannot be written.
    """
    try:
        endpoint = f"{own_address(info)} {_reserve_port()}"
    except (LaunchEnvironmentError, OSError):
        _write_files(folder, info, "")
        raise
    _write_files(folder, info, endpoint)
    start_own_thread("ranks", _warn_of_missing_ranks, folder, timeout_ns)
    return endpoint


def _write_files(folder: Path, info: RankInfo, text: str) -> None:
    draft = folder.with_name(f"{folder.name}.tmp")
    for stale in (draft, folder):
        shutil.rmtree(stale, ignore_errors=True)
    draft.mkdir(parents=True)
    for rank in range(1, info.world_size):
        (draft / str(rank)).write_text(text, encoding="utf-8")
    draft.rename(folder)


def _reserve_port() -> int:
    """Return a port that torch can listen on whenever the script asks for it, and no other process gets meanwhile.

    A bound socket reserves it. As long as that socket does not listen, another one with SO_REUSEADDR can be bound to
    the same port and listen; torch's store sets that option.
    """
    dual = socket.has_dualstack_ipv6()
    reservation = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if dual:
        reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reservation.bind(("", 0))
    port = int(reservation.getsockname()[1])
    _reserved_sockets.append(reservation.detach())
    return port


def _read_endpoint(folder: Path, info: RankInfo, timeout_ns: int) -> str:
    """Return the text of this rank's file, and remove it; the last rank to do so removes the folder."""
    file = folder / str(info.rank)
    if wait_until(file.exists, timeout_ns / 1e9, SHARED_POLL_S):
        endpoint = file.read_text(encoding="utf-8")
        file.unlink(missing_ok=True)  # rank 0 waits no longer, and removes all
        with contextlib.suppress(OSError):  # other ranks' files are still there
            folder.rmdir()
        return endpoint
    raise LaunchEnvironmentError(
        f"rank 0 has not published its address in {folder.parent} within --timeout {timeout_ns / 1e9:g}s: it has not "
        "started, or does not see this folder"
    )


def _warn_of_missing_ranks(folder: Path, timeout_ns: int) -> None:
    """Print after the timeout which ranks have not started: the script's own wait for them may be much longer."""
    wait_until(lambda: not folder.is_dir(), timeout_ns / 1e9, WATCH_S)
    try:
        missing = sorted(int(file.name) for file in folder.iterdir())
    except (OSError, ValueError):  # it is gone, or the file system has created its own file there
        return
    shutil.rmtree(folder, ignore_errors=True)  # nobody waits for them any more
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        print_warning(
            f"rank{'s' if len(missing) > 1 else ''} {shown} of the script did not start within --timeout "
            f"{timeout_ns / 1e9:g}s, or did not see {folder.parent}"
        )
