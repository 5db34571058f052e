"""`perfkit collectives`: measures collectives as torch issues them."""

import os
import sys
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from perfkit.capture.config import choices_by_accelerator
from perfkit.capture.distributed.launcher_env import detect_rank, needs_mpi
from perfkit.capture.lifecycle.local_launch import is_child, launch, refuse_inside_launcher
from perfkit.cli.config_options import Layer, command, options, resolve
from perfkit.cli.launched import leave_error_to_rank_0
from perfkit.cli.output import STDOUT, format_check, write_files
from perfkit.collectives.config import CollectivesConfig
from perfkit.errors import RunError, UsageError
from perfkit.report import DEFAULT_TOP, Reporter, builtin_suffixes, format_names, reporter, reporter_for
from perfkit.schema.collectives import CollectiveBenchmark
from perfkit.util.sigint import exit_on_sigint

if TYPE_CHECKING:
    from perfkit.cli import Call

_HELP: Final = """Measure collectives as torch issues them: time, bandwidth and correct results by size.

mpiexec, torchrun or srun start the ranks; `-n N` starts N on this host.

\b
perfkit collectives -n 2 --operators all_reduce
mpiexec -n 4 perfkit collectives --mesh dp=2,tp=2 -o reports/network.json -o reports/network.html
perfkit collectives -n 4 --pairs
"""


def _parameter(name: str, kind: Any, default: Any = None) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_OWN: Final = [
    _parameter(
        "ranks",
        Annotated[
            int,
            typer.Option(
                "-n",
                "--ranks",
                min=2,
                metavar="N",
                rich_help_panel="Run",
                help="Start N ranks on this host [default: the ranks of mpiexec, torchrun or srun].",
            ),
        ],
    ),
    _parameter(
        "output",
        Annotated[
            list[Path],
            typer.Option(
                "-o",
                "--output",
                metavar="FILE",
                rich_help_panel="Report",
                help=f"Also write to FILE, format by suffix ({', '.join(builtin_suffixes(CollectiveBenchmark))}); "
                "may be repeated.",
            ),
        ],
    ),
    _parameter(
        "format",
        Annotated[
            str,
            typer.Option(
                "-f",
                "--format",
                metavar=f"<{'|'.join(format_names(CollectiveBenchmark))}>",
                rich_help_panel="Report",
                callback=format_check(CollectiveBenchmark),
                help="Format on stdout.  [default: rich]",
            ),
        ],
    ),
]


def _start(call: "Call", given: dict[str, Any]) -> None:
    try:
        _run(call, given)
    except UsageError:
        leave_error_to_rank_0()
        raise


def _run(call: "Call", given: dict[str, Any]) -> None:
    ranks = given.pop("ranks", None)
    files = [(path, reporter_for(CollectiveBenchmark, path)) for path in given.pop("output", None) or []]
    files.append((STDOUT, reporter(CollectiveBenchmark, given.pop("format", "rich"))))
    (config,) = resolve([CollectivesConfig], [Layer("", given)])
    assert isinstance(config, CollectivesConfig)  # noqa: S101  resolve keeps the order
    if ranks is None and not needs_mpi(os.environ):
        config.check_world(detect_rank(os.environ).world_size)  # before torch is imported
    if ranks is None or is_child():
        _run_rank(config, files, call.debug)
    else:
        refuse_inside_launcher()
        config.check_world(ranks)
        launch(call.arguments, ranks, records=False)


def _run_rank(config: CollectivesConfig, files: list[tuple[Path, Reporter]], debug: bool) -> None:
    with exit_on_sigint():  # torch is imported
        from perfkit.collectives.measure.worker import run_rank

    def finish(record: CollectiveBenchmark) -> None:
        write_files(record, files, DEFAULT_TOP)
        sys.stdout.flush()

    record = run_rank(config, finish, debug)
    if record is not None:
        wrong = [finding.message for finding in record.findings if finding.severity == "error"]
        if wrong:
            raise RunError(wrong[0])


app = command(_start, [*_OWN, *options(CollectivesConfig, "Benchmark", choices_by_accelerator())], _HELP)
