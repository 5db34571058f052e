"""Which network interface reaches a host."""

import socket
import sys

import pytest

from perfkit.capture.distributed.rendezvous import interface_to


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_the_interface_that_reaches_this_host_itself() -> None:
    assert interface_to("127.0.0.1") == "lo"


def test_an_unknown_host_has_none() -> None:
    assert interface_to("nowhere.invalid") is None


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_the_interface_exists() -> None:
    assert interface_to("192.0.2.1") in (None, *(name for _, name in socket.if_nameindex()))
