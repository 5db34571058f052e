"""`perfkit analyze`: reports where step time goes in traces."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from msgspec.structs import replace

from perfkit.base.executors import EXECUTORS
from perfkit.base.parsing import Ranges, parse_numbers
from perfkit.cli.help_screen import Common
from perfkit.cli.output import PAGES, Targets, targets_of, write_page, write_report, write_sections
from perfkit.cli.typer_app import (
    READING,
    App,
    DataMarker,
    KernelRules,
    MaxBytes,
    StepMarker,
    among,
    chosen_from,
    read_options,
)
from perfkit.errors import UsageError
from perfkit.record.distributed.known_launchers import is_among_mpi_ranks
from perfkit.records.report import Report
from perfkit.report import DEFAULT_TOP, builtin_suffixes, format_names
from perfkit.subjects.table import SUBJECTS, answer_subjects

app = App()

_common = partial(typer.Option, rich_help_panel=Common("Output"))
_output = partial(typer.Option, rich_help_panel="Output")
_reading = partial(typer.Option, rich_help_panel=READING)
_runs = partial(typer.Option, rich_help_panel=Common("Several runs"))
_more = partial(typer.Option, rich_help_panel="More data")
_FORMATS: Final = ", ".join(format_names(Report))
_SECTIONS: Final = ", ".join(SUBJECTS.names())

_MOST_RANKS = 10_000_000
"""Largest world size to forecast."""


@app.command()
def analyze(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", hidden=True)],
    name: Annotated[
        str | None,
        _output(
            "-f",
            "--format",
            metavar="FORMAT",
            **chosen_from(lambda: format_names(Report)),
            help=f"Output format: {_FORMATS}; default: by the suffix of FILE, else summary.",
        ),
    ] = None,
    json: Annotated[bool, _common("--json", help="Print JSON on stdout, also with -o.")] = False,
    full: Annotated[bool, _common("--full", help="Print all tables, not only the summary.")] = False,
    section: Annotated[
        list[str] | None,
        _common(
            metavar="NAME",
            **chosen_from(SUBJECTS.names),
            help=f"Print only the tables about this: {_SECTIONS}; may be repeated.",
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        _common(
            "-o",
            "--output",
            metavar="FILE",
            help=f"Write to FILE, in the format of its suffix: {', '.join(builtin_suffixes(Report))}; or send to a "
            "tracker (tensorboard:FOLDER, mlflow:URI, wandb:PROJECT); may be repeated.",
        ),
    ] = None,
    html: Annotated[bool, _common("--html", help=f"Also write the page {PAGES}/NAME.html.")] = False,
    rank: Annotated[int | None, _reading(min=0, help="Rank of a trace that does not contain its rank.")] = None,
    step_marker: StepMarker = None,
    data_marker: DataMarker = None,
    kernel_rules: KernelRules = None,
    device_table: Annotated[
        Path | None,
        _more(metavar="FILE", help="TOML file with peaks of devices, for the roofline (`perfkit peaks`)."),
    ] = None,
    max_bytes: MaxBytes = None,
    top: Annotated[int, _common(min=1, help="Rows in ranked tables.")] = DEFAULT_TOP,
    executor: Annotated[
        str | None,
        _reading(
            metavar=f"<{'|'.join(EXECUTORS.names())}>",
            autocompletion=among(EXECUTORS.names()),
            help="Where traces are read; default: local processes, as many as useful.",
        ),
    ] = None,
    workers: Annotated[
        int | None, _reading(min=1, help="Worker processes; default: as many as cores and memory allow.")
    ] = None,
    scheduler: Annotated[
        str | None, _reading(metavar="ADDRESS", help="A running dask scheduler, for `--executor dask`.")
    ] = None,
    strict: Annotated[
        bool,
        _reading(
            "--strict",
            help="Fail if any trace is unreadable or damaged, if events of it are skipped or repaired, and on any "
            "finding of severity error.",
        ),
    ] = False,
    by: Annotated[
        list[str] | None,
        _runs(metavar="OPTION", help="Compare runs that differ only in this option; may be repeated."),
    ] = None,
    forecast: Annotated[
        str | None,
        _runs(metavar="N,N", help="World sizes to forecast throughput for; from a series of at least four."),
    ] = None,
    cross_check: Annotated[
        Literal["hta"] | None,
        _more(help="Compare with the breakdown of another tool (`hta` needs the extra `hta`)."),
    ] = None,
    collectives: Annotated[
        Path | None,
        _more(
            metavar="FILE",
            help="File of `perfkit collectives -o FILE.json`: show the share of its bandwidths that the runs reached.",
        ),
    ] = None,
    memory_snapshot: Annotated[
        Path | None,
        _more(
            metavar="FILE",
            help="Pickle of `torch.cuda.memory._dump_snapshot`, read without executing anything: who holds the memory, "
            "by stack (`--section memory`).",
        ),
    ] = None,
    comm_log: Annotated[
        list[Path] | None,
        _more(
            metavar="FILE",
            help="Log of NCCL, RCCL (NCCL_DEBUG=INFO) or oneCCL (CCL_LOG_LEVEL=info), or a folder of them; may be "
            "repeated: transports, versions, warnings (`--section comm-logs`).",
        ),
    ] = None,
    no_timelines: Annotated[
        bool,
        _output(
            "--no-timelines",
            help="Leave the timelines of a few steps, for which two traces are read again, out of pages.",
        ),
    ] = False,
    steps: Annotated[
        str | None,
        _output(
            metavar="N,N-N",
            help="Steps whose timelines pages have, such as 3,7-9 (2:3 if numbers start again: the second step 3); "
            "default: the longest and one of median length.",
        ),
    ] = None,
    no_cache: Annotated[
        bool,
        _reading("--no-cache", help="Neither read nor write cached results (PERFKIT_CACHE_DIR, or ~/.cache/perfkit)."),
    ] = False,
) -> None:
    """Show where step time goes. PATH is a trace (.json, .json.gz, .json.zst), a run folder, or a folder of those.

    \b
    perfkit analyze traces/my-run -o page.html --steps 3,7-9   these timelines
    perfkit analyze traces/ --json | jq .          as JSON (see `perfkit schema`)
    perfkit analyze traces/ --by compile           compare runs by one option
    perfkit analyze traces/ --forecast 64,128      throughput of more ranks

    \b
    perfkit analyze traces/                        all runs in a folder, compared
    perfkit analyze traces/my-run --full           one run, with all tables
    perfkit analyze traces/my-run --section idle   only tables on idle time
    perfkit analyze rank*.json.gz -o report.md     traces of any program
    perfkit analyze traces/my-run -o page.html     a page that opens offline
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    _check_tables(full=full, section=bool(section), elsewhere=bool(json or name or output))
    targets = targets_of(output or [], "rich" if full else name, json)
    has_timelines = (html or targets.has_page) and not no_timelines
    sizes = [] if forecast is None else sorted(parse_numbers(forecast, "--forecast", "8,16,32", most=_MOST_RANKS))
    page_steps = _page_steps(steps, has_timelines=has_timelines)
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.cli.progress import bar
    from perfkit.pipeline import analyze as pipeline
    from perfkit.storage.discovery import refuse_pipe

    if cross_check:
        from perfkit.tools.cross_check.hta import installed

        installed()
        for path in paths:
            refuse_pipe(Path(path), f"--cross-check {cross_check}")
    with bar() as progress:
        report = pipeline.analyze(
            *paths,
            rank=rank,
            step_marker=step_marker,
            data_marker=data_marker,
            kernel_rules=kernel_rules,
            device_table=device_table,
            # Several processes of `mpiexec` would otherwise all do the same work.
            executor=executor or ("mpi" if is_among_mpi_ranks(os.environ) else None),
            workers=workers,
            scheduler=scheduler,
            max_bytes=max_bytes,
            strict=strict,
            cache=not no_cache,
            progress=progress,
            by=[option.removeprefix("--").replace("-", "_") for option in by or []],
            forecast=sizes,
            collectives=collectives,
            memory_snapshot=memory_snapshot,
            comm_log=comm_log or [],
            page_steps=page_steps,
            subjects=_asked(section, targets, html=html),
        )
    if cross_check:
        from perfkit.tools.cross_check.hta import with_cross_check

        report = replace(report, runs=[with_cross_check(run) for run in report.runs])
    drawn = report
    if has_timelines:
        from perfkit.tools.merge.step_timelines import with_step_timelines

        reading = read_options(step_marker, data_marker, kernel_rules, max_bytes)
        drawn = with_step_timelines(report, reading, steps=page_steps)
    if section:
        write_sections(report, section, top)
    else:
        write_report(report, drawn, targets, top)
    if html:
        write_page(drawn, paths, top)


def _asked(section: list[str] | None, targets: Targets, *, html: bool) -> tuple[str, ...] | None:
    """Return the subjects to compute for what is written; None for all."""
    if html:
        return None
    if section:
        return tuple(section)
    return answer_subjects() if targets.is_answer else None


def _page_steps(steps: str | None, *, has_timelines: bool) -> Ranges | None:
    if steps is None:
        return None
    if not has_timelines:
        raise UsageError(
            "--steps: chooses the timelines of a page: use it with --html or -o FILE.html, without --no-timelines"
        )
    return Ranges("--steps", steps)


def _check_tables(*, full: bool, section: bool, elsewhere: bool) -> None:
    """Raise `UsageError` if tables are chosen twice, or for a file."""
    if full and section:
        raise UsageError("--full prints all tables, --section only some: remove one of them")
    if elsewhere and (full or section):
        option = "--full" if full else "--section"
        raise UsageError(f"{option} is for the terminal: remove it, -o FILE and -f FORMAT write all tables")
