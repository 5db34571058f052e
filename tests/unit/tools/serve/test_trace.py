"""The server of `perfkit view`: requests of a browser, and requests that must be refused."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import RemoteDisconnected
from pathlib import Path
from urllib.parse import unquote

import pytest

from perfkit.errors import UsageError, ViewError
from perfkit.tools.serve.trace import PUBLIC_UI, PUBLIC_UI_PORT, TraceServer, bundled_ui, origin_of, pieces
from tests.support.processes.loopback import ask, serving
from tests.support.processes.other_user import NOBODY, needs_root
from tests.support.processes.waiting import MOST_S, wait_until

CONTENT = b'{"traceEvents": []}'
NAME = "rank%200%20%231.json"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "rank 0 #1.json"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def public(trace: Path) -> Iterator[TraceServer]:
    with serving(TraceServer(trace, port=0)) as server:
        yield server


@pytest.fixture
def offline(trace: Path, tmp_path: Path) -> Iterator[TraceServer]:
    ui = tmp_path / "ui"
    (ui / "v1").mkdir(parents=True)
    (ui / "index.html").write_text("<title>UI</title>")
    (ui / "v1" / "main.js").write_text("1")
    (tmp_path / "secret").write_text("secret")
    with serving(TraceServer(trace, ui=None, ui_files=ui)) as server:
        yield server


def test_the_public_ui_may_fetch_from_one_port(trace: Path) -> None:
    try:
        server = TraceServer(trace)
    except ViewError as error:
        pytest.skip(str(error))
    with server:
        assert server.link == f"{PUBLIC_UI}/#!/?url=http://127.0.0.1:9001/{server.secret}/{NAME}"


def test_the_ui_fetches_the_trace(public: TraceServer) -> None:
    path = f"/{public.secret}/{NAME}"
    assert public.link == f"{PUBLIC_UI}/#!/?url=http://127.0.0.1:{public.server_port}{path}"
    status, headers, content = ask(public, path, Origin=PUBLIC_UI)
    assert (status, content) == (200, CONTENT)
    assert headers["Access-Control-Allow-Origin"] == PUBLIC_UI
    # The last byte reaches the client before the server's thread goes on to the next line.
    wait_until(lambda: public.fetched)


def test_asking_whether_it_may_is_not_fetching(public: TraceServer) -> None:
    asked = {"Origin": PUBLIC_UI, "Access_Control_Request_Private_Network": "true"}
    status, headers, _ = ask(public, public.path, "OPTIONS", **asked)
    assert (status, headers["Access-Control-Allow-Private-Network"]) == (204, "true")
    status, headers, content = ask(public, public.path, "HEAD", Origin=PUBLIC_UI)
    assert (status, headers["Content-Length"], content) == (200, str(len(CONTENT)), b"")
    assert not public.fetched


@pytest.mark.parametrize("origin", ["https://example.org", "https://ui.perfetto.dev.example.org", "null", None])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_no_other_page_is_answered(public: TraceServer, origin: str | None, method: str) -> None:
    headers = {} if origin is None else {"Origin": origin}
    status, given, content = ask(public, public.path, method, **headers)
    assert status == 403
    assert "Access-Control-Allow-Origin" not in given
    assert CONTENT not in content
    assert not public.fetched


def test_another_name_for_loopback_is_refused(public: TraceServer, offline: TraceServer) -> None:
    for server, origin in ((public, {"Origin": PUBLIC_UI}), (offline, {})):
        assert ask(server, server.path, Host=f"evil.example:{server.server_port}", **origin)[0] == 403


@pytest.mark.parametrize(
    "path",
    ["/", "/status", f"/trace/{NAME}", f"/{NAME}", f"//{NAME}", f"/{'A' * 43}/{NAME}", "/etc/passwd", "/../secret"],
)
def test_there_is_one_file_at_an_address_that_cannot_be_guessed(public: TraceServer, path: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        assert ask(public, path, method, Origin=PUBLIC_UI)[0] == 404
    assert not public.fetched
    assert ask(public, public.path, Origin=PUBLIC_UI)[2] == CONTENT


def test_every_server_has_an_address_of_its_own(trace: Path) -> None:
    secrets = set()
    for _ in range(5):
        with TraceServer(trace, port=0) as server:
            secrets.add(server.secret)
    assert len(secrets) == 5
    assert min(map(len, secrets)) >= 43


def test_a_request_with_bytes_that_are_no_text(public: TraceServer) -> None:
    with socket.create_connection(("127.0.0.1", public.server_port), timeout=MOST_S) as connection:
        host = f"127.0.0.1:{public.server_port}"
        connection.sendall(
            b"GET /\xff\xfe HTTP/1.0\r\nHost: %b\r\nOrigin: %b\r\n\r\n" % (host.encode(), PUBLIC_UI.encode())
        )
        assert b" 404 " in connection.recv(100)


@needs_root
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who has connected")
@pytest.mark.parametrize("user", [NOBODY, 0])
def test_another_user_gets_nothing_even_with_the_address(public: TraceServer, user: int) -> None:
    """Anybody can read the address in the command line of the browser."""
    port, path = public.server_port, public.path
    request = f"GET {path} HTTP/1.0\\r\\nHost: 127.0.0.1:{port}\\r\\nOrigin: {PUBLIC_UI}\\r\\n\\r\\n"
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf %b '{request}' >&3; cat <&3"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, user=user, extra_groups=[], cwd="/", timeout=MOST_S, check=False
    )
    assert (CONTENT in done.stdout) == (user == 0)
    if user:
        assert done.stdout == b""
        assert not public.fetched
        assert ask(public, path, Origin=PUBLIC_UI)[2] == CONTENT


def test_the_ui_of_its_own_is_served_on_any_port(offline: TraceServer) -> None:
    assert offline.server_port != PUBLIC_UI_PORT
    assert ask(offline, "/")[2] == b"<title>UI</title>"
    assert ask(offline, "/v1/main.js")[1]["Content-Type"] == "text/javascript"
    assert ask(offline, offline.path, Sec_Fetch_Site="same-origin")[2] == CONTENT
    assert ask(offline, offline.path, Sec_Fetch_Site="cross-site")[0] == 403
    for path in ("/../secret", "/%2e%2e/secret", "/v1/../../secret", "/" + "%2e%2e/" * 9 + "etc/passwd"):
        assert ask(offline, path)[0] == 404


def test_a_taken_port_is_named(public: TraceServer, trace: Path) -> None:
    with pytest.raises(ViewError, match=rf"port {public.server_port} of 127\.0\.0\.1 is in use"):
        TraceServer(trace, port=public.server_port)


def test_a_nul_in_a_path_is_no_crash(offline: TraceServer) -> None:
    assert ask(offline, "/a%00b")[0] == 404


def test_nothing_is_opened_for_a_file_that_cannot_be_shown(tmp_path: Path) -> None:
    with pytest.raises(ViewError, match="No such file"):
        TraceServer(tmp_path / "none.json")
    (tmp_path / "empty.json").touch()
    with pytest.raises(ViewError, match="the file is empty"):
        TraceServer(tmp_path / "empty.json")


def swap(trace: Path, what: str) -> None:
    other = trace.with_name("other")
    if what == "pipe":
        os.mkfifo(other)
    elif what == "link":
        trace.with_name("private").write_text("private")
        other.symlink_to(trace.with_name("private"))
    elif what == "new file":
        other.write_text("new")
    trace.unlink() if what == "nothing" else other.replace(trace)


@pytest.mark.parametrize("what", ["pipe", "link", "new file", "nothing"])
def test_what_the_path_leads_to_later_is_not_served(public: TraceServer, trace: Path, what: str) -> None:
    swap(trace, what)
    for _ in range(2):
        assert ask(public, public.path, Origin=PUBLIC_UI)[::2] == (200, CONTENT)


@pytest.mark.timeout(200)  # opening a pipe that nobody writes blocks
def test_a_pipe_is_refused_without_waiting(trace: Path) -> None:
    swap(trace, "pipe")
    with pytest.raises(ViewError, match="it is not a regular file"):
        TraceServer(trace, port=0)


def test_requests_at_the_same_time_each_get_all_of_it(trace: Path) -> None:
    content = os.urandom(5 << 20)
    trace.write_bytes(content)
    with serving(TraceServer(trace, port=0)) as server, ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda _: ask(server, server.path, Origin=PUBLIC_UI)[2], range(16))
        assert all(answer == content for answer in answers)


def test_a_trace_that_is_cut_off_meanwhile_ends_the_answer(trace: Path) -> None:
    with trace.open("rb") as stream:
        trace.write_bytes(CONTENT[:5])
        assert b"".join(pieces(stream.fileno(), len(CONTENT))) == CONTENT[:5]


def test_the_trace_is_closed_with_the_server(trace: Path) -> None:
    with TraceServer(trace, port=0) as server, server.trace.descriptor() as lent:
        server.server_close()
        assert b"".join(pieces(lent, len(CONTENT))) == CONTENT  # a request that is being answered
    with pytest.raises(OSError, match="no longer served"), server.trace.descriptor():
        pass


def test_a_request_that_fails_is_one_line(
    offline: TraceServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ui" / "v1" / "main.js").unlink()
    with pytest.raises(RemoteDisconnected):
        ask(offline, "/v1/main.js")
    wait_until(lambda: caplog.messages)
    assert "could not be answered: [Errno 2] No such file" in caplog.text
    assert "Traceback" not in capsys.readouterr().err
    assert ask(offline, "/")[0] == 200


def test_the_address_of_a_ui() -> None:
    assert origin_of("https://ui.example:8080/perfetto/#!/") == "https://ui.example:8080"
    assert origin_of("HTTPS://Ui.Example:443") == "https://ui.example"
    assert origin_of("http://user@ui.example:80/") == "http://ui.example"
    assert origin_of("http://[::1]:443/") == "http://[::1]:443"
    for wrong in ("ui.perfetto.dev", "file:///ui", "javascript:alert(1)", "http://:80", "http://a:b", "http://[", ""):
        with pytest.raises(UsageError, match="--ui"):
            origin_of(wrong)


def test_the_bundled_ui_is_found() -> None:
    assert (bundled_ui() / "index.html").is_file()


def test_a_name_that_is_not_utf_8_can_be_fetched(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"rank\xff.json")
    path.write_bytes(CONTENT)
    with serving(TraceServer(path, port=0)) as server:
        address = server.path
        assert unquote(address.rpartition("/")[2], errors="strict") == r"rank\udcff.json"
        status, _, content = ask(server, address, Origin=PUBLIC_UI)
    assert (status, content) == (200, CONTENT)
