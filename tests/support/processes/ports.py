"""Ports for servers that cannot choose one themselves."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a port that is free, and below those that systems give by themselves to whatever connects or listens."""
    while True:
        port = random.randrange(15_000, 32_000)  # noqa: S311
        with socket.socket() as listening, suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return port
