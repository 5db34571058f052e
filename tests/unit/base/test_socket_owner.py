"""Whose process is at the other end of a connection, according to Linux."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfkit.tools.serve import loopback
from perfkit.tools.serve.loopback import UnknownOwnerError, owner_of_peer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who has connected")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_the_owner_of_both_kinds_of_sockets(listening: socket.socket) -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
        with socket.socket(family) as client:
            try:
                client.connect((host, listening.getsockname()[1]))
            except OSError:
                assert family == socket.AF_INET6  # this machine has none
                continue
            accepted, peer = listening.accept()
            with accepted:
                assert owner_of_peer(peer, listening.getsockname()) == os.geteuid()


def test_a_closed_socket_is_nobodys_though_it_is_listed_as_roots(listening: socket.socket) -> None:
    client = socket.create_connection(listening.getsockname())
    accepted, peer = listening.accept()
    with accepted:
        client.close()
        assert owner_of_peer(peer, listening.getsockname()) is None


def test_what_the_system_does_not_say(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_connection(listening.getsockname()):
        accepted, peer = listening.accept()
        with accepted:
            (tmp_path / "users").write_text("70000 1000 1\n")  # a user namespace without this user
            monkeypatch.setattr(loopback, "_USERS", tmp_path / "users")
            with pytest.raises(UnknownOwnerError):
                owner_of_peer(peer, listening.getsockname())
            monkeypatch.setattr(loopback, "_TABLES", (tmp_path / "no table",))
            with pytest.raises(UnknownOwnerError):
                owner_of_peer(peer, listening.getsockname())
