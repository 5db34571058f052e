"""Which network interface reaches a host, and on which one the store listens."""

import socket
import sys
from datetime import timedelta

import pytest

from perfkit.errors import LaunchEnvironmentError
from perfkit.record.distributed.host_address import listen
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.distributed.rendezvous import _connect, interface_to

TIMEOUT = timedelta(seconds=10)
FIRST = RankInfo(rank=0, world_size=2, local_rank=0, local_world_size=2, launcher="perfkit")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_the_interface_that_reaches_this_host_itself() -> None:
    assert interface_to("127.0.0.1") == "lo"


def test_an_unknown_host_has_none() -> None:
    assert interface_to("nowhere.invalid") is None


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_the_interface_exists() -> None:
    assert interface_to("192.0.2.1") in (None, *(name for _, name in socket.if_nameindex()))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback has one address")
def test_the_store_of_one_host_listens_on_loopback_only() -> None:
    store = _connect(FIRST, "127.0.0.1", 0, True, TIMEOUT)
    with socket.create_connection(("127.0.0.1", store.port), timeout=5):
        pass
    with pytest.raises(ConnectionRefusedError):  # an address of this machine that the store would have on all of them
        socket.create_connection(("127.0.0.2", store.port), timeout=5)
    store.set("key", "value")
    other = _connect(FIRST, "127.0.0.1", store.port, False, TIMEOUT)
    assert other.get("key") == b"value"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchEnvironmentError, match=f"port {port} of 127.0.0.1 is in use"):
            _connect(FIRST, "127.0.0.1", port, True, TIMEOUT)


def test_an_address_of_another_machine_is_left_to_torch() -> None:
    assert listen("192.0.2.1", 0) is None
    assert listen("localhost", 0) is None
