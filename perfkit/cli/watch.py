"""`perfkit watch`: a live view of runs that are training."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.typer_app import App, check_folders, chosen_from
from perfkit.errors import UsageError

app = App()

_ORDERS = ("late", "data", "memory", "step", "rank")


@app.command()
def watch(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="A run with `--monitor`, or a folder of runs.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    sort: Annotated[
        str,
        typer.Option(
            metavar=f"<{'|'.join(_ORDERS)}>",
            help="Order of the table of ranks; key: s.",
            **chosen_from(lambda: _ORDERS),
        ),
    ] = "late",
) -> None:
    """Watch runs while they train: step time, where it goes, and which ranks are late.

    Shows what the monitor logs (`perfkit run --monitor`, `perfkit.monitor()`), of one or more runs, also from another
    machine with the same file system. Reads only what was appended. Of a folder of runs it follows the one that trains,
    and when that has ended, the next that starts.

    Keys: q quit, p pause, s sort, c take a trace of the next steps (`perfkit capture`; of one run).

    \b
    perfkit watch traces/                   the run that trains now, then the next
    perfkit watch traces/my-run
    perfkit watch traces/my-run traces/other-run
    perfkit watch --once traces/my-run      one frame, for scripts
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    check_folders(folders)
    if not once and not sys.stdout.isatty():
        raise UsageError("the live view needs a terminal: --once prints one frame")
    from rich.console import Console

    from perfkit.tools.watch.loop import Watch

    console = Console(highlight=False, markup=False, emoji=False)
    view = Watch(folders, sort)
    if once:
        view.show(console)
    else:
        view.follow(console)
