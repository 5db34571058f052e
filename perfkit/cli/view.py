"""`perfkit view`: opens a trace in the Perfetto UI."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.typer_app import App, print_line
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.viewer import TraceServer

app = App()

_PUBLIC = "https://ui.perfetto.dev"


@app.command()
def view(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A trace, a run folder, or a merged timeline.")],
    rank: Annotated[
        int | None, typer.Option(min=0, help="Rank to show, if PATH is a folder (default: the lowest).")
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Step to show at first, N of `ProfilerStep#N`; not of a merged timeline.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    offline: Annotated[
        bool, typer.Option("--offline", help="Also serve the UI locally, without internet (needs the extra `ui`).")
    ] = False,
    ui: Annotated[str, typer.Option(metavar="URL", help="Address of the Perfetto UI.")] = _PUBLIC,
) -> None:
    """Open a trace in the Perfetto UI.

    The trace goes from this machine to your browser only: the UI reads it there.

    \b
    perfkit view traces/my-run --rank 3
    perfkit view traces/my-run --rank 3 --step 12   opens at this step
    perfkit view trace.json.gz --no-browser   on a remote machine: forward the port, open the link
    perfkit view traces/my-run --offline      with the UI served from this machine
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    if offline and ui != _PUBLIC:
        raise UsageError("--offline serves its own UI: leave --ui out")
    from perfkit.storage.discovery import choose_trace
    from perfkit.viewer import TraceServer, bundled_ui, origin_of

    origin_of(ui)
    trace = choose_trace(path, rank)
    files = bundled_ui() if offline else None
    window = None if step is None else _window(trace, step)
    with TraceServer(trace, ui=None if offline else ui, ui_files=files, window=window) as server:
        _announce(server, trace, browser and not _is_remote())
        if offline:
            # The UI loads parts of itself on demand, for as long as it is used.
            with suppress(KeyboardInterrupt):
                server.serve_forever()
            return
        server.serve_until_fetched()
    print_line(f"{trace.name}: loaded in the browser")


def _window(trace: Path, step: int) -> tuple[int, int]:
    from perfkit.timeline.step_window import step_window

    return step_window(trace, step)


def _is_remote() -> bool:
    """Return whether a browser started here would not be on the user's machine."""
    return "SSH_CONNECTION" in os.environ and not os.environ.get("DISPLAY")


def _announce(server: "TraceServer", trace: Path, browser: bool) -> None:
    """Print the link, and open the browser if requested."""
    print_line(f"{trace}\n  {server.link}")
    if browser:
        import webbrowser

        browser = webbrowser.open(server.link)
    if not browser:
        port = server.server_port
        print_line(f"From another machine, first run:  ssh -L {port}:127.0.0.1:{port} {_host()}")
    until = (
        "Serving until Ctrl-C" if server.exchange.pages else "Waiting for the browser to fetch the trace; Ctrl-C ends"
    )
    print_line(until)


def _host() -> str:
    import socket

    return socket.gethostname()
