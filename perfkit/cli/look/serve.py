"""`perfkit serve`: shows a folder of runs in the browser, while they are recorded."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.typer_app import App, announce, check_folders

app = App()


@app.command()
def serve(
    paths: Annotated[list[Path], typer.Argument(metavar="FOLDER", hidden=True)],
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, show_default=False, help="Port on this machine [default: any free one]."),
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    offline: Annotated[
        bool, typer.Option("--offline", help="Also serve the Perfetto UI, without internet (needs the extra `ui`).")
    ] = False,
) -> None:
    """Show runs in the browser: a live list, reports, comparisons and timelines.

    FOLDER has runs or traces.

    Only you can open it, and only on this machine: the printed address contains a secret.

    \b
    perfkit serve traces/
    perfkit serve traces/ --no-browser --port 8000   on a remote machine
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    check_folders(paths)
    from perfkit.base.process import trim_large_allocations
    from perfkit.tools.serve.site import RunServer

    trim_large_allocations()
    with RunServer(paths, port=port, offline=offline) as server, suppress(KeyboardInterrupt):
        announce(", ".join(map(str, paths)), server.link, server.server_port, browser=browser)
        server.serve_forever()
