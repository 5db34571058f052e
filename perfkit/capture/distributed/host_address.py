"""The address at which other ranks reach this host; without torch."""

import socket

from perfkit.capture.distributed.launcher_env import RankInfo
from perfkit.errors import LaunchEnvironmentError


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
