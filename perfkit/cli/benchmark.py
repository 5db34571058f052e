"""What `perfkit collectives` and `perfkit input` share: their ranks, and what becomes of the record."""

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import typer
from msgspec.structs import replace

from perfkit.base.process import exit_on_sigint
from perfkit.cli.compare import noise_fraction, raise_unless_passed
from perfkit.cli.config_options import parameter
from perfkit.cli.output import output_parameters, take_outputs, write_files
from perfkit.errors import RunError, UsageError
from perfkit.record.distributed.launcher_env import detect_rank, needs_mpi
from perfkit.record.lifecycle.local_launch import is_child, launch, leave_error_to_rank_0, refuse_inside_launcher
from perfkit.report import DEFAULT_TOP

if TYPE_CHECKING:
    from perfkit.cli import Call

RecordT = TypeVar("RecordT")


class Kind(NamedTuple, Generic[RecordT]):
    """A kind of benchmark, whose records have `findings` and a `comparison`."""

    name: str
    """Of the command, and of the package below `perfkit.tools` with its `measure.benchmark`."""
    record: type[RecordT]
    load: Callable[[Path], RecordT]
    """Reads an earlier file; raises StoreError."""
    conditions: str
    """Examples of `--fail-on`."""


def report_options(kind: Kind[Any]) -> list[Parameter]:
    panel = "Report"
    option = partial(typer.Option, rich_help_panel=panel)
    conditions = f"Fail if this holds, such as {kind.conditions}; may be repeated."
    noise = "Treat changes up to this, such as 3%, as noise."
    return [
        *output_parameters(kind.record, panel, panel),
        parameter("compare", Path, option(metavar="FILE", help="Compare with an earlier -o FILE.json.")),
        parameter("fail_on", list[str], option(metavar="CONDITION", help=conditions)),
        parameter("assume_noise", str, option(metavar="PERCENT", help=noise)),
    ]


class _Reporting(Generic[RecordT]):
    """What becomes of the record.

    Raises:
        UsageError: One is invalid.
        StoreError: The earlier file cannot be read.
    """

    def __init__(self, kind: Kind[RecordT], given: dict[str, Any]) -> None:
        self._kind = kind
        *self._files, self._shown = take_outputs(kind.record, given)
        from perfkit.subjects.comparison.gates import parse_gate  # numpy: not for `--help`

        self._path: Path | None = given.pop("compare", None)
        self._gates = [parse_gate(text) for text in given.pop("fail_on", None) or []]
        self._noise = noise_fraction(given.pop("assume_noise", None))
        change = next((gate for gate in self._gates if gate.relative), None)
        if self._path is None and change is not None:
            raise UsageError(f"--fail-on {change.expression!r}: a change needs an earlier file: add --compare FILE")
        self._before = None if self._path is None else kind.load(self._path)

    def finish(self, record: RecordT) -> RecordT:
        """Compare the record, write it to the files, and return it.

        Raises:
            StoreError: A file cannot be written.
        """
        if self._before is not None or self._gates:
            from perfkit.pipeline.benchmarks import compare_benchmarks, differences

            before = record if self._before is None else self._before
            path = "" if self._path is None else str(self._path)
            compared = compare_benchmarks(path, before, record, self._gates, self._noise)
            if self._before is None:
                compared = replace(compared, changes=[])
            made: Any = record
            findings = [*made.findings, *differences(before, record)]
            record = replace(made, comparison=compared, findings=findings)
        write_files(record, self._files, DEFAULT_TOP)
        return record

    def show(self, record: Any) -> None:
        """Write the record to stdout; not while the other ranks wait, because the reader may be gone (`| head`).

        Raises:
            RunError: A finding is an error.
            GateError: A condition holds.
            UndecidedGateError: None holds, and one could not be evaluated.
        """
        write_files(record, [self._shown], DEFAULT_TOP)
        sys.stdout.flush()
        wrong = next((finding.message for finding in record.findings if finding.severity == "error"), None)
        if wrong is not None:
            raise RunError(wrong)
        raise_unless_passed(record.comparison.gates if record.comparison else ())


def run_benchmark(
    kind: Kind[Any], call: "Call", given: dict[str, Any], prepare: Callable[[dict[str, Any]], tuple[Any, ...]]
) -> None:
    """Measure on this rank, or start `--ranks` of them; of several ranks only the first prints a usage error.

    The number of ranks is checked first, as far as it is known without torch.

    Args:
        kind: The kind of benchmark.
        call: The command line.
        given: The options that were given.
        prepare: Takes those that are not of the report; returns the configuration, and what `measure` takes besides.

    Raises:
        UsageError: An option is invalid, or the number of ranks does not fit.
    """
    ranks = given.pop("ranks", None)
    try:
        reporting = _Reporting(kind, given)
        config, *more = prepare(given)
        if ranks is None and not needs_mpi(os.environ):
            config.check_world(detect_rank(os.environ).world_size)
        if ranks is not None and not is_child():
            refuse_inside_launcher()
            config.check_world(ranks)
            launch(call.arguments, ranks, records=False)
            return
        with exit_on_sigint():  # torch is imported
            from perfkit.record.benchmark_rank import run_benchmark as run_rank

            measure = import_module(f"perfkit.tools.{kind.name}.measure.benchmark").measure
        record = run_rank(
            kind.name, config, lambda setting: measure(config, setting, *more), reporting.finish, call.debug
        )
    except UsageError:
        leave_error_to_rank_0()
        raise
    if record is not None:
        reporting.show(record)
