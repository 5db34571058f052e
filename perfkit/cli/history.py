"""`perfkit history`: shows step time and efficiency over time."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from perfkit.cli.output import Json, format_option, output_option, shown_and_written, write_files
from perfkit.cli.typer_app import App, KernelRules, StepMarker
from perfkit.records.comparison import History

app = App()

_LAST = 30


@app.command()
def history(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", hidden=True)],
    by: Annotated[
        Literal["run", "commit"], typer.Option(help="One point per run, or per commit with all its runs.")
    ] = "run",
    output: Annotated[list[Path] | None, output_option(History)] = None,
    name: Annotated[str | None, format_option(History, default="  [default: rich]")] = None,
    json: Json = False,
    last: Annotated[int, typer.Option(min=1, help="Rows in tables: the newest.")] = _LAST,
    step_marker: StepMarker = None,
    kernel_rules: KernelRules = None,
) -> None:
    """Show step time and efficiency over runs or commits.

    PATH is a run folder, or a folder of those. Only completed runs of the same configuration on the same kind of
    device are compared. Change points beyond noise are reported for eight or more runs.

    \b
    perfkit history traces/ -o history.html    charts of every run
    perfkit history traces/ --by commit        a point and an interval per commit
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = shown_and_written(History, name, output, json)
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.base.process import trim_large_allocations
    from perfkit.pipeline.compare import history as history_of

    trim_large_allocations()
    record = history_of(*paths, by=by, step_marker=step_marker, kernel_rules=kernel_rules)
    write_files(record, files, last)
