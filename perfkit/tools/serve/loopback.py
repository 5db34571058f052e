"""What the servers share: they listen on loopback, and answer only this machine's same user.

Every user of a machine can connect to loopback, and a web page can point its own name at it (DNS rebinding). So
addresses have a random part, the `Host` of a request must be this server's, and on Linux the kernel is asked whose
process has connected.
"""

import errno
import http.server
import logging
import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from perfkit.base.formatting import text_of
from perfkit.errors import ViewError

HOST: Final = "127.0.0.1"
_ROOT: Final = 0
_LOG: Final = logging.getLogger(__name__)


class LoopbackServer(http.server.ThreadingHTTPServer):
    """Listens on loopback.

    Args:
        port: Port; 0 for any free one.
        in_use: Message if the port is in use.

    Raises:
        ViewError: The port cannot be listened on.
    """

    daemon_threads = True
    # Two servers on one port would each receive some of the requests.
    allow_reuse_port = False

    def __init__(self, port: int, handler: Callable[..., "LoopbackHandler"], in_use: str) -> None:
        try:
            super().__init__((HOST, port), handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ViewError(in_use) from error
            raise ViewError(f"cannot listen on {HOST}:{port}: {error.strerror}") from error

    def verify_request(self, _request: object, client_address: Any) -> bool:
        """Return whether this user, or root, has connected; where the system cannot tell, the secret must do."""
        try:
            owner = owner_of_peer(client_address[:2], (HOST, self.server_port))
        except UnknownOwnerError:
            return True
        return owner in (os.getuid(), os.geteuid(), _ROOT)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  names of the base
        """Say in one line why a request has no answer, such as a file that is gone: the base prints a traceback."""
        _LOG.warning("a request could not be answered: %s", text_of(sys.exception()))

    @property
    def here(self) -> str:
        return f"http://{HOST}:{self.server_port}"


class LoopbackHandler(http.server.BaseHTTPRequestHandler, ABC):
    """Answers one request."""

    server_version = "perfkit"
    sys_version = ""
    timeout = 60  # browsers keep unused connections open

    @property
    def own_origins(self) -> tuple[str, ...]:
        port = self.server.server_address[1]  # type: ignore[index]
        return f"http://{HOST}:{port}", f"http://localhost:{port}"

    @property
    def has_own_host(self) -> bool:
        """Whether the request names this server, and not another name that leads here."""
        return f"http://{self.headers.get('Host')}".lower() in self.own_origins

    @abstractmethod
    def answer(self, *, with_content: bool) -> None:
        """Answer a request for the path in `self.path`."""

    def answer_preflight(self) -> None:
        """Answer the request by which a browser asks what a page of another origin may fetch: nothing."""
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)

    def do_GET(self) -> None:
        self.answer(with_content=True)

    def do_HEAD(self) -> None:
        """Answer without the content."""
        self.answer(with_content=False)

    def do_OPTIONS(self) -> None:
        self.answer_preflight()

    def handle(self) -> None:
        """Answer; a browser that disconnects is not an error."""
        with suppress(BrokenPipeError, ConnectionResetError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: the terminal shows the link."""


_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_USERS: Final = Path("/proc/self/uid_map")
_ESTABLISHED: Final = "01"
"""A socket that its process has closed is listed as root's, but not as established."""

Address = tuple[str, int]


class UnknownOwnerError(Exception):
    """This system does not report who owns a socket."""


def owner_of_peer(peer: Address, own: Address) -> int | None:
    """Return the user of the process at the other end of an IPv4 connection on this machine.

    Returns:
        The user's number; None if no process has that end open.

    Raises:
        UnknownOwnerError: Not on Linux, or the user is one that this process's user namespace does not have.
    """
    ends = [*zip(_as_listed(peer), _as_listed(own), strict=True)]
    rows = [fields for fields in _connections() if (fields[1], fields[2]) in ends]
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


def _as_listed(address: Address) -> tuple[str, str]:
    """Return an address as the tables write it: as IPv4, and as IPv4 in IPv6."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    prefix = int.from_bytes(bytes.fromhex("0000FFFF"), sys.byteorder)
    listed = f"{number:08X}:{address[1]:04X}"
    return listed, f"{'0' * 16}{prefix:08X}{listed}"


def _exists(user: int) -> bool:
    """Return whether this user namespace has a user; all others are listed as one number."""
    try:
        rows = [[int(field) for field in line.split()] for line in _USERS.read_text().splitlines()]
    except (OSError, ValueError):
        return False
    return any(first <= user < first + count for first, _, count in rows)
