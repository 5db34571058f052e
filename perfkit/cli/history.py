"""`perfkit history`: runs in, how their step time and efficiency went over time out."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from perfkit.cli.typer_app import App
from perfkit.errors import UsageError
from perfkit.report import HISTORY_REPORTERS, HISTORY_SUFFIXES, history_reporter

app = App()

_LAST = 30


def _known(name: str) -> str:
    if name not in HISTORY_REPORTERS:
        raise typer.BadParameter(f"'{name}' is none of {', '.join(HISTORY_REPORTERS)}")
    return name


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
            help=f"Write to FILE too, as its suffix says ({', '.join(HISTORY_SUFFIXES)}); may be repeated.",
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "-f", "--format", metavar=f"<{'|'.join(HISTORY_REPORTERS)}>", callback=_known, help="What to print."
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
    files = [(path, _format_of(path)) for path in output or []]
    # Last, so that `--help` and a mistyped option do not wait for numpy.
    from perfkit.cli.stdout import standard_output
    from perfkit.pipeline.compare import history as history_of
    from perfkit.report.output_files import writing
    from perfkit.util.malloc import trim_large_allocations

    trim_large_allocations()
    found = history_of(*paths, by=by, step_marker=step_marker)
    for path, kind in files:
        with writing(path) as stream:
            history_reporter(kind)(found, stream, top=last)
    history_reporter(name)(found, standard_output(name), top=last)


def _format_of(output: Path) -> str:
    """Return the format that the suffix of `output` stands for."""
    if output.suffix.lower() not in HISTORY_SUFFIXES:
        raise UsageError(f"-o {output}: the suffix says no format; use {', '.join(HISTORY_SUFFIXES)}")
    return HISTORY_SUFFIXES[output.suffix.lower()]
