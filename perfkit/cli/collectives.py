"""`perfkit collectives`: measures collectives as torch issues them."""

import os
import sys
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from msgspec.structs import replace

from perfkit.capture.config import choices_by_accelerator
from perfkit.capture.distributed.launcher_env import detect_rank, needs_mpi
from perfkit.capture.lifecycle.local_launch import is_child, launch, refuse_inside_launcher
from perfkit.cli.compare import noise_fraction, raise_unless_passed
from perfkit.cli.config_options import Layer, command, options, resolve
from perfkit.cli.output import STDOUT, format_option, output_option, write_files
from perfkit.cli.recording.launched import leave_error_to_rank_0
from perfkit.collectives.config import CollectivesConfig
from perfkit.errors import RunError, UsageError
from perfkit.report import DEFAULT_TOP, Reporter, reporter, reporter_for
from perfkit.schema.benchmark.collectives import CollectiveBenchmark
from perfkit.storage.collectives_file import load_collectives
from perfkit.util.sigint import exit_on_sigint

if TYPE_CHECKING:
    from perfkit.cli import Call
    from perfkit.comparison.gates import Gate

_HELP: Final = """Measure collectives as torch issues them: time, bandwidth and correct results by size.

mpiexec, torchrun or srun start the ranks; `-n N` starts N on this host.

\b
perfkit collectives -n 2 --operators all_reduce
mpiexec -n 4 perfkit collectives --mesh dp=2,tp=2 -o reports/network.json -o reports/network.html
perfkit collectives -n 4 --pairs
perfkit collectives -n 2 --compare old.json --fail-on 'all_reduce.busbw < -10%'

\b
Exit codes: 1 a result is wrong, 3 a condition holds, 4 one cannot be evaluated.
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
        Annotated[list[Path], output_option(CollectiveBenchmark, "Report")],
    ),
    _parameter(
        "format",
        Annotated[str, format_option(CollectiveBenchmark, "Report", "  [default: rich]")],
    ),
    _parameter(
        "compare",
        Annotated[
            Path,
            typer.Option(metavar="FILE", rich_help_panel="Report", help="Compare with an earlier -o FILE.json."),
        ],
    ),
    _parameter(
        "fail_on",
        Annotated[
            list[str],
            typer.Option(
                metavar="CONDITION",
                rich_help_panel="Report",
                help="Fail if this holds, such as 'all_reduce.busbw < -10%' (the largest message) or "
                "'all_reduce.latency > 500us' (the smallest); may be repeated.",
            ),
        ],
    ),
    _parameter(
        "assume_noise",
        Annotated[
            str,
            typer.Option(
                metavar="PERCENT", rich_help_panel="Report", help="Take changes up to this, such as 3%, to be noise."
            ),
        ],
    ),
]


class _Reporting(NamedTuple):
    """What becomes of the record."""

    files: list[tuple[Path, Reporter]]
    shown: Reporter
    """For stdout."""
    compare: Path | None
    gates: "list[Gate]"
    assumed_noise: float | None

    def finish(self, record: CollectiveBenchmark) -> CollectiveBenchmark:
        """Compare the record, write it to the files, and return it.

        Raises:
            StoreError: A file cannot be written.
        """
        record = self._compared(record)
        write_files(record, self.files, DEFAULT_TOP)
        return record

    def _compared(self, record: CollectiveBenchmark) -> CollectiveBenchmark:
        from perfkit.collectives.comparison import compare_benchmarks, differences

        if self.compare is None and not self.gates:
            return record
        before = record if self.compare is None else load_collectives(self.compare)
        path = str(self.compare or "")
        compared = compare_benchmarks(path, before, record, self.gates, self.assumed_noise)
        if self.compare is None:
            compared = replace(compared, changes=[])
        return replace(record, comparison=compared, findings=[*record.findings, *differences(before, record)])


def _start(call: "Call", given: dict[str, Any]) -> None:
    try:
        _run(call, given)
    except UsageError:
        leave_error_to_rank_0()
        raise


def _run(call: "Call", given: dict[str, Any]) -> None:
    ranks = given.pop("ranks", None)
    reporting = _reporting(given)
    (config,) = resolve([CollectivesConfig], [Layer("", given)])
    assert isinstance(config, CollectivesConfig)  # noqa: S101  resolve keeps the order
    if ranks is None and not needs_mpi(os.environ):
        config.check_world(detect_rank(os.environ).world_size)  # before torch is imported
    if ranks is None or is_child():
        _run_rank(config, reporting, call.debug)
    else:
        refuse_inside_launcher()
        config.check_world(ranks)
        launch(call.arguments, ranks, records=False)


def _reporting(given: dict[str, Any]) -> _Reporting:
    """Take the options of the report from `given`, and check them before anything is measured.

    Raises:
        UsageError: One is invalid.
        StoreError: The earlier file cannot be read.
    """
    files = [(path, reporter_for(CollectiveBenchmark, path)) for path in given.pop("output", None) or []]
    shown = reporter(CollectiveBenchmark, given.pop("format", "rich"))
    from perfkit.comparison.gates import parse_gate  # numpy: not for `--help`

    earlier = given.pop("compare", None)
    gates = [parse_gate(text) for text in given.pop("fail_on", None) or []]
    noise = noise_fraction(given.pop("assume_noise", None))
    if earlier is None:
        for gate in gates:
            if gate.relative:
                raise UsageError(f"--fail-on {gate.expression!r}: a change needs an earlier file: add --compare FILE")
    else:
        load_collectives(earlier)
    return _Reporting(files, shown, earlier, gates, noise)


def _run_rank(config: CollectivesConfig, reporting: _Reporting, debug: bool) -> None:
    with exit_on_sigint():  # torch is imported
        from perfkit.collectives.measure.worker import run_rank

    record = run_rank(config, reporting.finish, debug)
    if record is not None:
        # Not while the others wait: the reader may be gone (`| head`), which is no failure of a rank.
        write_files(record, [(STDOUT, reporting.shown)], DEFAULT_TOP)
        sys.stdout.flush()
        wrong = [finding.message for finding in record.findings if finding.severity == "error"]
        if wrong:
            raise RunError(wrong[0])
        raise_unless_passed(record.comparison.gates if record.comparison else ())


app = command(_start, [*_OWN, *options(CollectivesConfig, "Benchmark", choices_by_accelerator())], _HELP)
