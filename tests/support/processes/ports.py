"""Ports for processes that listen some seconds after the port was chosen."""

import contextlib
import secrets
import socket
from typing import Final

_FIRST: Final = 12_000
_COUNT: Final = 16_000
"""Below 32,768: from there on Linux gives ports to sockets that ask for any, of which ranks have many."""


def free_port() -> int:
    """Return a port on which nobody listens, and which no other program is given by chance until it is used."""
    for _ in range(_COUNT):
        port = _FIRST + secrets.randbelow(_COUNT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")
