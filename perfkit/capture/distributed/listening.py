"""Open a socket for a store of torch's that listens on one address only. Without torch."""

import errno
import socket
from typing import Final

from perfkit.errors import LaunchEnvironmentError

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
