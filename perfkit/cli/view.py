"""`perfkit view`: a trace in Perfetto, in the browser."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.typer_app import App
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.viewer import TraceServer

app = App()

_PUBLIC = "https://ui.perfetto.dev"


@app.command()
def view(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A trace, a run's folder, or a merged timeline.")],
    rank: Annotated[int | None, typer.Option(min=0, help="Of a folder, the rank to show (the lowest).")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    offline: Annotated[
        bool, typer.Option("--offline", help="Serve the UI too, without internet (needs the extra `ui`).")
    ] = False,
    ui: Annotated[str, typer.Option(metavar="URL", help="Address of the Perfetto UI.")] = _PUBLIC,
) -> None:
    """Open a trace in the Perfetto UI.

    The trace goes from this machine to your browser and nowhere else: the UI is a page that reads it there.

    \b
    perfkit view traces/my-run --rank 3
    perfkit view trace.json.gz --no-browser   on a remote machine: forward the port, open the link
    perfkit view traces/my-run --offline      with the UI from this machine
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    if offline and ui != _PUBLIC:
        raise UsageError("--offline serves the UI itself: leave --ui out")
    from perfkit.storage.discovery import choose_trace
    from perfkit.viewer import TraceServer, bundled_ui, origin_of

    origin_of(ui)
    trace = choose_trace(path, rank)
    files = bundled_ui() if offline else None
    with TraceServer(trace, ui=None if offline else ui, ui_files=files) as server:
        _announce(server, trace, browser and not _is_remote())
        if offline:
            # The UI loads parts of itself when they are used: how long, only its user knows.
            with suppress(KeyboardInterrupt):
                server.serve_forever()
            return
        server.serve_until_fetched()
    typer.echo(f"{trace.name} is in the browser")


def _is_remote() -> bool:
    """Whether a browser that is started here would be somewhere else than the user."""
    return "SSH_CONNECTION" in os.environ and not os.environ.get("DISPLAY")


def _announce(server: "TraceServer", trace: Path, browser: bool) -> None:
    """Say where the trace is to be seen, and open the browser if asked to."""
    typer.echo(f"{trace}\n  {server.link}")
    if browser:
        import webbrowser

        browser = webbrowser.open(server.link)
    if not browser:
        port = server.server_port
        typer.echo(f"From another machine, first:  ssh -L {port}:127.0.0.1:{port} {_host()}")
    until = "Ctrl-C ends it" if server.exchange.pages else "Waiting until the browser has fetched it; Ctrl-C ends it"
    typer.echo(until)


def _host() -> str:
    import socket

    return socket.gethostname()
