"""How the ranks find each other: rank 0 opens a store on a free port and publishes its address.

No port is hard-coded or chosen before it is bound, so that two runs on one host cannot collide. The address is passed
on by:

======================================  ====================================================
torchrun, or MASTER_ADDR + MASTER_PORT  these variables (`env://`)
an MPI launcher with mpi4py             an MPI broadcast
`perfkit run -n`                        a file in a temporary folder of the parent
srun                                    a file in the trace folder, named after job and step
======================================  ====================================================
"""

import contextlib
import fcntl
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)

from perfkit.base.atomic_write import atomic_write
from perfkit.base.formatting import install_extra
from perfkit.base.polling import wait_until
from perfkit.errors import LaunchEnvironmentError, StoreError
from perfkit.record.distributed.host_address import listen, own_address
from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE
from perfkit.record.distributed.launch_id import slurm_step
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.distributed.store_barrier import PeerFailedError

_LOG: Final = logging.getLogger(__name__)

_SIOCGIFADDR: Final = 0x8915
"""Linux's request for the IPv4 address of an interface (`man 7 netdevice`)."""

Publish = Callable[[str | None], str]
"""Called by rank 0 with `host:port` and by the others with None; returns rank 0's `host:port`."""


def open_store(info: RankInfo, mpi: Any, trace_dir: Path, timeout: timedelta) -> Store:
    """Connect this rank to the store that rank 0 opens.

    Args:
        mpi: `mpi4py.MPI` or None.
        timeout: Limit of the wait for the other ranks, and of every later request.

    Raises:
        LaunchEnvironmentError: There is no way to find the other ranks, or rank 0 does not respond in time.
    """
    if info.world_size == 1:
        return HashStore()
    address, port = (os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT"))
    if (address or port) and info.launcher != "perfkit":
        return _explicit_store(info, address, port, timeout)
    return _agreed_store(info, _publisher(info, mpi, trace_dir, timeout), timeout)


def _explicit_store(info: RankInfo, address: str | None, port: str | None, timeout: timedelta) -> Store:
    if not address or not port or not port.isdecimal():
        raise LaunchEnvironmentError(
            f"MASTER_ADDR={address or ''} and MASTER_PORT={port or ''} must be set together: set both to rank "
            "0's host and a free port, or neither"
        )
    # torchrun's agent hosts the store, every rank is a client of it.
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = _connect(info, address, int(port), info.rank == 0 and not agent, timeout)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"perfkit/{attempt}", store)


def _agreed_store(info: RankInfo, publish: Publish, timeout: timedelta) -> Store:
    if info.rank == 0:
        host = own_address(info)
        store = _connect(info, host, 0, True, timeout)
        publish(f"{host}:{store.port}")
        return store
    host, _, port = publish(None).rpartition(":")
    return _connect(info, host, int(port), False, timeout)


def _connect(info: RankInfo, host: str, port: int, master: bool, timeout: timedelta) -> TCPStore:
    interface = None if info.single_host else interface_to(host)
    if interface is not None:
        # By default gloo uses the address that this host's name resolves to, often 127.0.0.1, which no other can reach.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    listening = listen(host, port) if master else None
    try:
        store = TCPStore(
            host,
            port if listening is None else listening.getsockname()[1],
            info.world_size,
            master,
            timeout=timeout,
            wait_for_workers=False,
            master_listen_fd=None if listening is None else listening.detach(),
        )
    except dist.DistError as error:
        raise LaunchEnvironmentError(
            f"cannot reach rank 0's store at {host}:{port} within "
            f"{timeout.total_seconds():g} s: {str(error).splitlines()[0]}"
        ) from error
    what = "hosts" if master else "has reached"
    _LOG.info("rank %d of %d %s the store at %s:%d", info.rank, info.world_size, what, host, store.port)
    return store


def interface_to(host: str) -> str | None:
    """Return the network interface that routes IPv4 packets to `host`; None if it cannot be found out."""
    if sys.platform != "linux":
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # nothing is sent: the kernel only chooses the route
        except OSError:
            return None
        own = probe.getsockname()[0]
        return next((name for _, name in socket.if_nameindex() if _address_of(probe, name) == own), None)


def _address_of(any_socket: socket.socket, interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    try:
        answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
    except OSError:  # it has no IPv4 address
        return None
    return socket.inet_ntoa(answer[20:24])


def _publisher(info: RankInfo, mpi: Any, trace_dir: Path, timeout: timedelta) -> Publish:
    if info.launcher == "perfkit":
        return _by_file(Path(os.environ[RENDEZVOUS_VARIABLE]), timeout)
    if mpi is not None and mpi.COMM_WORLD.size == info.world_size:
        return lambda text: str(mpi.COMM_WORLD.bcast(text, root=0))
    if info.launcher == "slurm":
        return _by_file(slurm_file(trace_dir), timeout)
    if info.rank > 0:
        raise PeerFailedError("rank 0 reports the same")
    raise LaunchEnvironmentError(
        f"{info.launcher} has started {info.world_size} ranks that cannot find each other: install "
        f"mpi4py ({install_extra('mpi')}), or set MASTER_ADDR and MASTER_PORT to rank 0's host and a free port"
    )


def slurm_file(trace_dir: Path) -> Path:
    """Return the file through which the ranks of a Slurm step find each other; its name is unique to the step."""
    return trace_dir / f".rendezvous-{slurm_step()}"


def remove_endpoint_files(info: RankInfo, trace_dir: Path) -> None:
    """Remove the file through which the ranks found each other; called once all have."""
    if info.launcher == "slurm" and info.rank == 0:
        slurm_file(trace_dir).unlink(missing_ok=True)


def _by_file(path: Path, timeout: timedelta) -> Publish:
    def publish(text: str | None) -> str:
        if text is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot create {path.parent}: {error.strerror}") from error
            with atomic_write(path) as stream:
                stream.write(text.encode())
            return text
        return _read(path, timeout)

    return publish


def _read(path: Path, timeout: timedelta) -> str:
    if wait_until(path.exists, timeout.total_seconds()):
        with contextlib.suppress(FileNotFoundError):  # rank 0 has given up since
            return path.read_text(encoding="utf-8")
    raise LaunchEnvironmentError(
        f"rank 0 has not written {path} within {timeout.total_seconds():g} s: it has not started, or the "
        "folder is not shared between the nodes; set MASTER_ADDR and MASTER_PORT instead"
    )
