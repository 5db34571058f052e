"""`perfkit analyze`: traces in, a report out."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from perfkit.cli.output import STDOUT, format_check, write_files
from perfkit.cli.typer_app import App
from perfkit.errors import StoreError, UsageError
from perfkit.executors import EXECUTORS
from perfkit.external.cross_checks import CROSS_CHECKS, with_cross_check
from perfkit.report import DEFAULT_TOP, Reporter, builtin_suffixes, format_names, reporter, reporter_for
from perfkit.schema.report import Report
from perfkit.util.formatting import escape_unprintable

app = App()

_MOST_RANKS = 10_000_000
"""Ranks to forecast: more than any machine has."""

PAGES = "reports"
"""Where pages go: a folder of the working directory."""


def _known_cross_check(name: str | None) -> str | None:
    if name is not None and name not in CROSS_CHECKS:
        raise typer.BadParameter(f"'{name}' is none of {', '.join(CROSS_CHECKS.names())}")
    return name


@app.command()
def analyze(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", hidden=True)],
    name: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--format",
            metavar=f"<{'|'.join(format_names(Report))}>",
            callback=format_check(Report),
            help="How to write the report; without it the suffix of FILE says, else `rich`.",
        ),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=f"Write to FILE instead, as its suffix says ({', '.join(builtin_suffixes(Report))}); may be repeated.",
        ),
    ] = None,
    html: Annotated[
        bool | None,
        typer.Option(
            "--html/--no-html",
            help=f"Write the page {PAGES}/NAME.html too; without either, where several runs are shown on the terminal.",
        ),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="The rank of a trace that does not say.")] = None,
    step_marker: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Annotations that mark the steps, in place of `ProfilerStep#N`.",
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="<int>",
            help="Refuse a trace with more text, decompressed; up to it, allow what looks like a bomb.  "
            "[default: 64 GiB]",
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows in the ranked tables.")] = DEFAULT_TOP,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar=f"<{'|'.join(EXECUTORS.names())}>",
            help="Where the traces are read; without it here, in as many processes as help.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that read; without it as many as cores and memory allow.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A running dask scheduler, for `--executor dask`.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if any trace cannot be analysed, instead of saying so in the report.")
    ] = False,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="Compare runs that differ in this option only; may be repeated."),
    ] = None,
    forecast: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="World sizes to forecast the throughput of, from a series of at least four."),
    ] = None,
    cross_check: Annotated[
        str | None,
        typer.Option(
            metavar=f"<{'|'.join(CROSS_CHECKS.names())}>",
            callback=_known_cross_check,
            help="Compare with the breakdown of another tool (`hta` needs the extra `hta`).",
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither use the results of earlier analyses nor keep this one's.")
    ] = False,
) -> None:
    """Say where the time of each step went.

    PATH is a trace (.json, .json.gz, .json.zst), a run folder, or a folder of those.

    \b
    perfkit analyze traces/                      every run in a folder, and how they compare
    perfkit analyze rank*.json.gz -o report.md   foreign traces, the report as markdown
    perfkit analyze traces/ -f json | jq .       the same as data (see `perfkit schema`)
    perfkit analyze traces/ --by compile         runs that differ in one option, side by side
    perfkit analyze traces/ --forecast 64,128    what a series of runs says of more ranks
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = _files(output or [STDOUT], name)
    sizes = _sizes(forecast)
    # Last, so that `--help` and a mistyped option do not wait for numpy.
    from perfkit.cli.progress import bar
    from perfkit.pipeline import analyze as pipeline
    from perfkit.util.malloc import trim_large_allocations

    trim_large_allocations()
    if cross_check:
        CROSS_CHECKS.load(cross_check).check_installed()
    with bar() as progress:
        report = pipeline.analyze(
            *paths,
            rank=rank,
            step_marker=step_marker,
            executor=executor or _launched(),
            workers=workers,
            scheduler=scheduler,
            max_bytes=max_bytes,
            strict=strict,
            cache=not no_cache,
            progress=progress,
            by=[option.removeprefix("--").replace("-", "_") for option in by or []],
            forecast=sizes,
        )
    if cross_check:
        report = replace(report, runs=[with_cross_check(run, cross_check) for run in report.runs])
    write_files(report, files, top)
    written = ", ".join(escape_unprintable(str(path)) for path, _ in files if path != STDOUT)
    if written and sys.stderr.isatty():
        typer.echo(f"perfkit: the report is {written}", err=True)
    unasked = html is None and not output and name is None and len(report.runs) > 1
    if html or unasked:
        _write_page(report, paths, top, unasked)


def _sizes(text: str | None) -> list[int]:
    """Return the world sizes of `--forecast`."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 0 < int(part) <= _MOST_RANKS for part in parts):
        raise UsageError(f"--forecast {text}: write world sizes as 8 or 8,16,32, up to {_MOST_RANKS}")
    return sorted({int(part) for part in parts})


def _write_page(report: Report, paths: list[str], top: int, unasked: bool) -> None:
    """Write the page of a report, named after what was analysed, and say where; unasked it may fail."""
    name = report.runs[0].run if len(report.runs) == 1 else Path(os.path.commonpath(map(os.path.abspath, paths))).name
    page = Path(PAGES, f"{name.replace('/', '-') or 'report'}.html")
    try:
        write_files(report, [(page, reporter(Report, "html"))], top)
    except StoreError as error:
        if not unasked:
            raise
        typer.echo(f"perfkit: no page: {escape_unprintable(str(error))}", err=True)
    else:
        typer.echo(f"perfkit: the page is {escape_unprintable(str(page))}", err=True)


def _launched() -> str | None:
    """Return `mpi` where `mpiexec` started several of this, which otherwise would all do the same."""
    sizes = (os.environ.get(name, "1") for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
    return "mpi" if any(size.isdecimal() and int(size) > 1 for size in sizes) else None


def _files(output: list[Path], name: str | None) -> list[tuple[Path, Reporter]]:
    """Return where the report goes, each path with its reporter; `-` is standard output."""
    if name is not None and len(output) > 1:
        raise UsageError(f"-f {name} is the format of one FILE: for {len(output)} files, leave -f out and use suffixes")
    return [(path, _reporter(path, name)) for path in output]


def _reporter(path: Path, name: str | None) -> Reporter:
    """Return the reporter called `name`, else the one that the suffix of `path` selects."""
    if name is None and path.suffix:
        return reporter_for(Report, path)
    return reporter(Report, name or "rich")
