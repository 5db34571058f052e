"""Find out whose process is at the other end of a connection on this machine."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_USERS: Final = Path("/proc/self/uid_map")
_ESTABLISHED: Final = "01"
"""A socket that its process has closed is listed as root's, but not as established."""

Address = tuple[str, int]


class UnknownOwnerError(Exception):
    """This system does not report who owns a socket."""


def owner_of_peer(peer: Address, own: Address) -> int | None:
    """Return the user of the process at the other end of an IPv4 connection on this machine.

    Args:
        peer: Address and port of that end.
        own: Those of this end.

    Returns:
        The user's number; None if no process has that end open.

    Raises:
        UnknownOwnerError: Not on Linux, or the user is one that this process's user namespace does not have.
    """
    rows = [fields for fields in _connections() if fields[1:3] in _as_listed(peer, own)]
    if not rows:
        return None
    state, user = rows[0][3], int(rows[0][7])
    if state != _ESTABLISHED:
        return None
    if not _exists(user):
        raise UnknownOwnerError
    return user


def _connections() -> Iterator[list[str]]:
    """Yield the columns of the kernel's tables (proc_pid_net(5)): number, local and remote address, state, …, user."""
    readable = False
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        readable = True
        yield from (line.split() for line in lines)
    if not readable:
        raise UnknownOwnerError


def _as_listed(peer: Address, own: Address) -> list[list[str]]:
    """Return the pair of addresses as the tables write it: as IPv4, and as IPv4 in IPv6."""
    listed = [_hexadecimal(peer), _hexadecimal(own)]
    return [listed, [_mapped(text) for text in listed]]


def _hexadecimal(address: Address) -> str:
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"


def _mapped(listed: str) -> str:
    prefix = int.from_bytes(bytes.fromhex("0000FFFF"), sys.byteorder)
    return f"{'0' * 16}{prefix:08X}{listed}"


def _exists(user: int) -> bool:
    """Return whether this user namespace has a user; all others are listed as one number."""
    try:
        rows = [[int(field) for field in line.split()] for line in _USERS.read_text().splitlines()]
    except (OSError, ValueError):
        return False
    return any(first <= user < first + count for first, _, count in rows)
