"""The address at which other ranks reach this host; without torch."""

import errno
import socket
from typing import Final

from perfkit.errors import LaunchEnvironmentError
from perfkit.record.distributed.launcher_env import RankInfo


def own_address(info: RankInfo) -> str:
    """Return an address at which the other ranks reach this host.

    Raises:
        LaunchEnvironmentError: There are ranks on other hosts, and this host's name resolves to no such address.
    """
    if info.single_host:
        return "127.0.0.1"
    try:
        entries = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        entries = []
    addresses = [str(entry[4][0]) for entry in entries if entry[0] == socket.AF_INET]
    usable = [address for address in addresses if not address.startswith("127.")]
    if not usable:
        raise LaunchEnvironmentError(
            f"the name of this host ({socket.gethostname()}) resolves to no address that other nodes can "
            "reach: set MASTER_ADDR and MASTER_PORT to rank 0's address and a free port"
        )
    return usable[0]


_BACKLOG: Final = 4096
"""Ranks that may connect at the same time; the system has its own limit."""


def listen(host: str, port: int) -> socket.socket | None:
    """Return a socket that listens on one IPv4 address only; None if `host` is not an address of this machine.

    By default torch's store listens on all interfaces, and it does whatever anybody who can connect asks of it.

    Raises:
        LaunchEnvironmentError: The port is in use.
    """
    try:
        socket.inet_pton(socket.AF_INET, host)  # a name may stand for several addresses
        return socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LaunchEnvironmentError(f"port {port} of {host} is in use: choose another MASTER_PORT") from error
        return None
