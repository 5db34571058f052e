"""`perfkit history`: runs in, how their step time and efficiency went over time out."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from perfkit.cli.output import STDOUT, format_check, write_files
from perfkit.cli.typer_app import App
from perfkit.report import builtin_suffixes, format_names, reporter, reporter_for
from perfkit.schema.history import History

app = App()

_LAST = 30


@app.command()
def history(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", hidden=True)],
    by: Annotated[
        Literal["run", "commit"], typer.Option(help="What a point is: a run, or all runs of a commit.")
    ] = "run",
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=f"Write to FILE too, as its suffix says ({', '.join(builtin_suffixes(History))}); may be repeated.",
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            metavar=f"<{'|'.join(format_names(History))}>",
            callback=format_check(History),
            help="What to print.",
        ),
    ] = "rich",
    last: Annotated[int, typer.Option(min=1, help="Rows in the tables: the newest.")] = _LAST,
    step_marker: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Annotations that mark the steps, in place of `ProfilerStep#N`.")
    ] = None,
) -> None:
    """Say how step time and efficiency went over runs, or over commits.

    PATH is a run folder, or a folder of those. Only like is set beside like: completed runs of one configuration on
    one kind of device. A change that lasts is named where it is more than noise, which eight runs or more can tell.

    \b
    perfkit history traces/ -o history.html       with charts of every run
    perfkit history traces/ --by commit           repeats of a commit are one point, with an interval
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = [(path, reporter_for(History, path)) for path in output or []]
    files.append((STDOUT, reporter(History, name)))
    # Last, so that `--help` and a mistyped option do not wait for numpy.
    from perfkit.pipeline.compare import history as history_of
    from perfkit.util.malloc import trim_large_allocations

    trim_large_allocations()
    found = history_of(*paths, by=by, step_marker=step_marker)
    write_files(found, files, last)
