"""What the commands that benchmark share: their ranks, and what becomes of the record."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar

import typer
from msgspec.structs import replace

from perfkit.cli.compare import noise_fraction, raise_unless_passed
from perfkit.cli.output import JSON_HELP, STDOUT, format_on_stdout, format_option, output_option, write_files
from perfkit.cli.recording.launched import leave_error_to_rank_0
from perfkit.errors import RunError, UsageError
from perfkit.record.distributed.launcher_env import detect_rank, needs_mpi
from perfkit.record.lifecycle.local_launch import is_child, launch, refuse_inside_launcher
from perfkit.records.common import Finding
from perfkit.records.comparison import GateResult
from perfkit.report import DEFAULT_TOP, Reporter, reporter, reporter_for

if TYPE_CHECKING:
    from perfkit.subjects.comparison.gates import Gate

RecordT = TypeVar("RecordT")


class Comparing(NamedTuple):
    """An earlier record, and conditions."""

    path: str | None
    """Of the earlier file."""
    gates: "list[Gate]"
    assumed_noise: float | None
    """Relative change up to which a change counts as noise."""


class Kind(NamedTuple, Generic[RecordT]):
    """A kind of benchmark, whose records have `findings` and a `comparison`."""

    record: type[RecordT]
    load: Callable[[Path], RecordT]
    """Reads an earlier file; raises StoreError."""
    compare: Callable[[RecordT, RecordT, Comparing], tuple[Any, Iterable[Finding]]]
    """Takes the earlier record (the same one without), the new one and the conditions; returns the comparison, and what
    differs besides the times."""


def rank_option(least: int, default: str) -> Parameter:
    """Return `-n`."""
    return _parameter(
        "ranks",
        Annotated[
            int,
            typer.Option(
                "-n",
                "--ranks",
                min=least,
                metavar="N",
                rich_help_panel="Run",
                help=f"Start N ranks on this host [default: {default}].",
            ),
        ],
    )


def report_options(record: type, example: str) -> list[Parameter]:
    """Return the options of what becomes of a record; `example` describes conditions."""
    panel = "Report"
    conditions = f"Fail if this holds, such as {example}; may be repeated."
    return [
        _parameter("output", Annotated[list[Path], output_option(record, panel)]),
        _parameter("format", Annotated[str, format_option(record, panel, "  [default: rich]")]),
        _parameter("json", Annotated[bool, typer.Option("--json", rich_help_panel=panel, help=JSON_HELP)]),
        _parameter(
            "compare",
            Annotated[
                Path, typer.Option(metavar="FILE", rich_help_panel=panel, help="Compare with an earlier -o FILE.json.")
            ],
        ),
        _parameter(
            "fail_on",
            Annotated[list[str], typer.Option(metavar="CONDITION", rich_help_panel=panel, help=conditions)],
        ),
        _parameter(
            "assume_noise",
            Annotated[
                str,
                typer.Option(
                    metavar="PERCENT", rich_help_panel=panel, help="Treat changes up to this, such as 3%, as noise."
                ),
            ],
        ),
    ]


class Reporting(Generic[RecordT]):
    """What becomes of the record.

    Args:
        kind: The kind of benchmark.
        given: The options that were given, from which those of the report are taken.

    Raises:
        UsageError: One is invalid.
        StoreError: The earlier file cannot be read.
    """

    def __init__(self, kind: Kind[RecordT], given: dict[str, Any]) -> None:
        self._kind = kind
        self._files = [(path, reporter_for(kind.record, path)) for path in given.pop("output", None) or []]
        self._shown: Reporter = reporter(
            kind.record, format_on_stdout(given.pop("format", None), given.pop("json", False)) or "rich"
        )
        from perfkit.subjects.comparison.gates import parse_gate  # numpy: not for `--help`

        earlier: Path | None = given.pop("compare", None)
        gates = [parse_gate(text) for text in given.pop("fail_on", None) or []]
        noise = noise_fraction(given.pop("assume_noise", None))
        if earlier is None:
            for gate in gates:
                if gate.relative:
                    raise UsageError(
                        f"--fail-on {gate.expression!r}: a change needs an earlier file: add --compare FILE"
                    )
        self._before = None if earlier is None else kind.load(earlier)
        self._comparing = Comparing(None if earlier is None else str(earlier), gates, noise)

    def finish(self, record: RecordT) -> RecordT:
        """Compare the record, write it to the files, and return it.

        Raises:
            StoreError: A file cannot be written.
        """
        if self._before is not None or self._comparing.gates:
            before = record if self._before is None else self._before
            compared, differences = self._kind.compare(before, record, self._comparing)
            if self._before is None:
                compared = replace(compared, changes=[])
            made: Any = record
            record = replace(made, comparison=compared, findings=[*made.findings, *differences])
        write_files(record, self._files, DEFAULT_TOP)
        return record

    def show(self, record: RecordT, findings: Sequence[Finding], gates: Sequence[GateResult]) -> None:
        """Write the record to stdout; not while the other ranks wait, because the reader may be gone (`| head`).

        Raises:
            RunError: A finding is an error.
            GateError: A condition holds.
            UndecidedGateError: None holds, and one could not be evaluated.
        """
        write_files(record, [(STDOUT, self._shown)], DEFAULT_TOP)
        sys.stdout.flush()
        wrong = [finding.message for finding in findings if finding.severity == "error"]
        if wrong:
            raise RunError(wrong[0])
        raise_unless_passed(gates)


def run_benchmark(run: Callable[[], None]) -> None:
    """Run a benchmark's command; of several ranks only the first prints that an option is wrong."""
    try:
        run()
    except UsageError:
        leave_error_to_rank_0()
        raise


def start_ranks(
    arguments: list[str], ranks: int | None, check_world: Callable[[int], None], run_rank: Callable[[], None]
) -> None:
    """Run this rank, or start `ranks` of them; first check the number of ranks as far as it is known without torch.

    Raises:
        UsageError: The number of ranks does not fit the options.
    """
    if ranks is None and not needs_mpi(os.environ):
        check_world(detect_rank(os.environ).world_size)
    if ranks is None or is_child():
        run_rank()
    else:
        refuse_inside_launcher()
        check_world(ranks)
        launch(arguments, ranks, records=False)


def _parameter(name: str, kind: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
