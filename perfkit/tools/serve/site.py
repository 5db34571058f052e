"""Serves the runs below some folders to a browser, for as long as it is wanted.

Whoever knows the address can read every report and trace below the folders: see `perfkit.tools.serve.loopback`.
"""

import secrets
import threading
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from perfkit.tools.serve.loopback import HOST, LoopbackHandler, LoopbackServer
from perfkit.tools.serve.pages import Page, Pages
from perfkit.tools.serve.trace import PUBLIC_UI, TraceServer, bundled_ui

_PATIENCE_S: Final = 2.0
"""Time for a trace that is being opened as the server ends; a file system that does not answer may take for ever."""
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
)


class RunServer(LoopbackServer):
    """Serves pages about runs.

    Raises:
        ViewError: The port is in use, or there is no Perfetto UI to serve.
    """

    def __init__(self, folders: list[Path], *, port: int = 0, offline: bool = False) -> None:
        self.secret = secrets.token_urlsafe(32)
        self._ui_files = bundled_ui() if offline else None
        self._traces: TraceServer | None = None
        self._opening = threading.Lock()
        self.pages = Pages(folders, self._open_trace)
        in_use = f"port {port} of {HOST} is in use: choose another with --port"
        super().__init__(port, partial(_Handler, self), in_use)

    @property
    def link(self) -> str:
        """The address to open in the browser."""
        return f"{self.here}/{self.secret}/"

    def _open_trace(self, trace: Path, step: int | None, at: str) -> str:
        """Serve one trace to the Perfetto UI, in place of the last one; returns the address to open, at a step or time.

        The UI at ui.perfetto.dev can fetch from one port only, so there is one such server.
        """
        from perfkit.tools.serve.step_window import parse_time_span, step_window

        window = step_window(trace, step, None, parse_time_span(at) if at else None) if at or step is not None else None
        ui = None if self._ui_files else PUBLIC_UI
        with self._opening:
            self._close_trace()
            server = TraceServer(trace, ui=ui, ui_files=self._ui_files, window=window)
            threading.Thread(target=server.serve_forever, name="perfkit-trace", daemon=True).start()
            self._traces = server  # now that it serves: `shutdown` would wait for ever for one that does not
            return server.link

    def _close_trace(self) -> None:
        if self._traces is not None:
            self._traces.shutdown()
            self._traces.server_close()
            self._traces = None

    def server_close(self) -> None:
        if self._opening.acquire(timeout=_PATIENCE_S):
            try:
                self._close_trace()
            finally:
                self._opening.release()
        super().server_close()


class _Handler(LoopbackHandler):
    """Answers one request: only below the secret path, and only to this server's own pages or a typed address."""

    def __init__(self, server: RunServer, *args: object) -> None:
        self._server = server
        super().__init__(*args)  # type: ignore[arg-type]

    def answer(self, *, with_content: bool) -> None:
        prefix, _, path = self.path.removeprefix("/").partition("/")
        known = secrets.compare_digest(prefix.encode("utf-8", "surrogateescape"), self._server.secret.encode())
        foreign = self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        if not known or not self.has_own_host or foreign or self.headers.get("Origin") not in (*self.own_origins, None):
            self.send_error(HTTPStatus.FORBIDDEN, explain="Open the address that perfkit serve has printed.")
            return
        page = self._server.pages.answer(path)
        with suppress(BrokenPipeError, ConnectionResetError):
            self._send(page, with_content=with_content)

    def _send(self, page: Page, *, with_content: bool) -> None:
        self.send_response(page.status)
        if page.location:
            self.send_header("Location", page.location)
        self.send_header("Content-Type", page.media_type)
        self.send_header("Content-Length", str(len(page.content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY + ("; frame-src 'self'" if page.frames else ""))
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")  # the address has the secret
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_content:
            self.wfile.write(page.content)
