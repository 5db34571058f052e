"""Runs a server of perfkit's in a thread, and asks it as a browser would."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from perfkit.tools.serve.loopback import LoopbackServer
from tests.support.processes.waiting import MOST_S

S = TypeVar("S", bound=LoopbackServer)


@contextmanager
def serving(server: S) -> Iterator[S]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(server: LoopbackServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and content of the answer; `_` in the name of a header stands for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=MOST_S)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()
