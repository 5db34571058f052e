"""`perfkit analyze`: reports where step time goes in traces."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Any, Final, Literal

import typer
from msgspec.structs import replace

from perfkit.base.executors import EXECUTORS
from perfkit.base.parsing import Ranges, parse_numbers
from perfkit.cli.config_options import command, option, parameter
from perfkit.cli.help_screen import Common
from perfkit.cli.output import PAGES, Targets, targets_of, write_page, write_report, write_sections
from perfkit.cli.typer_app import READING, READING_OPTIONS, among, chosen_from, read_options
from perfkit.errors import UsageError
from perfkit.record.distributed.known_launchers import is_among_mpi_ranks
from perfkit.records.report import Report
from perfkit.report import DEFAULT_TOP, builtin_suffixes, format_names
from perfkit.subjects.table import SUBJECTS, answer_subjects

_output, _common_output = partial(option, "Output"), partial(option, Common("Output"))
_reading, _runs, _more = partial(option, READING), partial(option, Common("Several runs")), partial(option, "More data")
_FORMATS: Final = partial(format_names, Report)
_READ_MARKERS: Final = [parameter(name, kind) for name, kind in READING_OPTIONS.items()]

_MOST_RANKS = 10_000_000
"""Largest world size to forecast."""

_SHOWN: Final[list[Parameter]] = [
    _output(
        "format",
        str,
        f"Output format: {', '.join(_FORMATS())}; default: by the suffix of FILE, else summary.",
        *("-f", "--format"),
        metavar="FORMAT",
        **chosen_from(_FORMATS),
    ),
    _common_output("json", bool, "Print JSON on stdout, also with -o."),
    _common_output("full", bool, "Print all tables, not only the summary."),
    _common_output(
        "section",
        list[str],
        f"Print only the tables about this: {', '.join(SUBJECTS.names())}; may be repeated.",
        metavar="NAME",
        **chosen_from(SUBJECTS.names),
    ),
    _common_output(
        "output",
        list[str],
        f"Write to FILE, in the format of its suffix: {', '.join(builtin_suffixes(Report))}; or send to a tracker "
        "(tensorboard:FOLDER, mlflow:URI, wandb:PROJECT); may be repeated.",
        *("-o", "--output"),
        metavar="FILE",
    ),
    _common_output("html", bool, f"Also write the page {PAGES}/NAME.html."),
    _common_output("top", int, "Rows in ranked tables.", default=DEFAULT_TOP, min=1),
    _output(
        "no_timelines", bool, "Leave the timelines of a few steps, for which two traces are read again, out of pages."
    ),
    _output(
        "steps",
        str,
        "Steps whose timelines pages have, such as 3,7-9 (2:3 if numbers start again: the second step 3); default: the "
        "longest and one of median length.",
        metavar="N,N-N",
    ),
]
"""Options of what is written."""
_ANALYSED: Final[list[Parameter]] = [
    _reading("rank", int, "Rank of a trace that does not contain its rank.", min=0),
    *_READ_MARKERS,
    _reading(
        "executor",
        str,
        "Where traces are read; default: local processes, as many as useful.",
        metavar=f"<{'|'.join(EXECUTORS.names())}>",
        autocompletion=among(EXECUTORS.names()),
    ),
    _reading("workers", int, "Worker processes; default: as many as cores and memory allow.", min=1),
    _reading("scheduler", str, "A running dask scheduler, for `--executor dask`.", metavar="ADDRESS"),
    _reading(
        "strict",
        bool,
        "Fail if any trace is unreadable or damaged, if events of it are skipped or repaired, and on any finding of "
        "severity error.",
    ),
    _reading("no_cache", bool, "Neither read nor write cached results (PERFKIT_CACHE_DIR, or ~/.cache/perfkit)."),
    _more("device_table", Path, "TOML file with peaks of devices, for the roofline (`perfkit peaks`).", metavar="FILE"),
    _more(
        "collectives",
        Path,
        "File of `perfkit collectives -o FILE.json`: show the share of its bandwidths that the runs reached.",
        metavar="FILE",
    ),
    _more(
        "memory_snapshot",
        Path,
        "Pickle of `torch.cuda.memory._dump_snapshot`, read without executing anything: who holds the memory, by stack "
        "(`--section memory`).",
        metavar="FILE",
    ),
    _more(
        "comm_log",
        list[Path],
        "Log of NCCL, RCCL (NCCL_DEBUG=INFO) or oneCCL (CCL_LOG_LEVEL=info), or a folder of them; may be repeated: "
        "transports, versions, warnings (`--section comm-logs`).",
        metavar="FILE",
    ),
    _runs("by", list[str], "Compare runs that differ only in this option; may be repeated.", metavar="OPTION"),
    _runs("forecast", str, "World sizes to forecast throughput for; from a series of at least four.", metavar="N,N"),
]
"""Those of `perfkit.pipeline.analyze.analyze`, by its names."""
_CROSS_CHECK: Final = _more(
    "cross_check", Literal["hta"], "Compare with the breakdown of another tool (`hta` needs the extra `hta`)."
)

_HELP: Final = """Show where step time goes. PATH is a trace (.json, .json.gz, .json.zst), a
run folder, or a folder of those.

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
"""


def _analyze(_: Any, given: dict[str, Any]) -> None:
    paths = given.pop("paths")
    shown = {one.name: given.pop(one.name, None) for one in _SHOWN}
    section, html, top = shown["section"], bool(shown["html"]), shown["top"]
    _check_tables(full=shown["full"], section=section, elsewhere=shown["json"] or shown["format"] or shown["output"])
    targets = targets_of(shown["output"] or [], "rich" if shown["full"] else shown["format"], bool(shown["json"]))
    has_timelines = (html or targets.has_page) and not shown["no_timelines"]
    page_steps = _page_steps(shown["steps"], has_timelines=has_timelines)
    asked = {"page_steps": page_steps, "subjects": _asked(section, targets, html=html)}
    cross_check = given.pop("cross_check", None)
    report = _report(paths, {**_analysed(given), **asked}, cross_check)
    drawn = report
    if has_timelines:
        from perfkit.tools.merge.step_timelines import with_step_timelines

        reading = read_options(**{name: given.get(name) for name in READING_OPTIONS})
        drawn = with_step_timelines(report, reading, steps=page_steps)
    if section:
        write_sections(report, section, top)
    else:
        write_report(report, drawn, targets, top)
    if html:
        write_page(drawn, paths, top)


_PATHS: Final = parameter("paths", list[str], typer.Argument(metavar="PATH", hidden=True), Parameter.empty)
app = command(_analyze, [_PATHS, *_SHOWN, *_ANALYSED, _CROSS_CHECK], _HELP)


def _analysed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the analysis that some options stand for."""
    convert: dict[str, Callable[[Any], Any]] = {
        "by": lambda options: [one.removeprefix("--").replace("-", "_") for one in options],
        "forecast": lambda text: sorted(parse_numbers(text, "--forecast", "8,16,32", most=_MOST_RANKS)),
    }
    found = {name: convert.get(name, lambda value: value)(value) for name, value in given.items()}
    found["cache"] = not found.pop("no_cache", False)
    # Several processes of `mpiexec` would otherwise all do the same work.
    return {"executor": "mpi" if is_among_mpi_ranks(os.environ) else None} | found


def _report(paths: list[str], arguments: Mapping[str, Any], cross_check: str | None) -> Report:
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.cli.progress import bar
    from perfkit.pipeline import analyze as pipeline

    if cross_check:
        from perfkit.storage.discovery import refuse_pipe
        from perfkit.tools.cross_check.hta import installed, with_cross_check

        installed()
        for path in paths:
            refuse_pipe(Path(path), f"--cross-check {cross_check}")
    with bar() as progress:
        report = pipeline.analyze(*paths, progress=progress, **arguments)
    return replace(report, runs=[with_cross_check(run) for run in report.runs]) if cross_check else report


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


def _check_tables(*, full: object, section: object, elsewhere: object) -> None:
    """Raise `UsageError` if tables are chosen twice, or for a file."""
    if full and section:
        raise UsageError("--full prints all tables, --section only some: remove one of them")
    if elsewhere and (full or section):
        option = "--full" if full else "--section"
        raise UsageError(f"{option} is for the terminal: remove it, -o FILE and -f FORMAT write all tables")
