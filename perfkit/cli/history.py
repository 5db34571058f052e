"""`perfkit history`: shows step time and efficiency over time."""

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
        Literal["run", "commit"], typer.Option(help="One point per run, or per commit with all its runs.")
    ] = "run",
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=f"Also write to FILE, format by suffix ({', '.join(builtin_suffixes(History))}); may be repeated.",
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            metavar=f"<{'|'.join(format_names(History))}>",
            callback=format_check(History),
            help="Format on stdout.",
        ),
    ] = "rich",
    last: Annotated[int, typer.Option(min=1, help="Rows in tables: the newest.")] = _LAST,
    step_marker: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Annotations that mark steps, instead of `ProfilerStep#N`.")
    ] = None,
    kernel_rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with rules for the names of device kernels.")
    ] = None,
) -> None:
    """Show step time and efficiency over runs or commits.

    PATH is a run folder, or a folder of those. Only completed runs of the same configuration on the same kind of
    device are compared. Change points beyond noise are reported for eight or more runs.

    \b
    perfkit history traces/ -o history.html       with charts of every run
    perfkit history traces/ --by commit           one point per commit, with an interval
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = [(path, reporter_for(History, path)) for path in output or []]
    files.append((STDOUT, reporter(History, name)))
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.pipeline.compare import history as history_of
    from perfkit.util.malloc import trim_large_allocations

    trim_large_allocations()
    record = history_of(*paths, by=by, step_marker=step_marker, kernel_rules=kernel_rules)
    write_files(record, files, last)
