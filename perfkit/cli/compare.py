"""`perfkit compare` and `perfkit history`: what changed between two runs, and over many."""

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Annotated, Final, Literal

import typer

from perfkit.cli.output import Json, format_option, output_option, shown_and_written, write_files
from perfkit.cli.typer_app import App, DataMarker, KernelRules, StepMarker
from perfkit.errors import GateError, UndecidedGateError, UsageError
from perfkit.records.comparison import Comparison, GateResult, History
from perfkit.records.per_rank.idle import CAUSES
from perfkit.report import DEFAULT_TOP

app = App()
history_app = App()


_CAUSES: Final = fill(f"CAUSE: {', '.join(CAUSES)}", 72)
_HELP: Final = f"""Report what changed between two runs, and whether it is more than noise.

Noise is estimated from three or more repeats on each side. With fewer, changes are only shown, and a condition on
a change (+5%) cannot be evaluated, unless --assume-noise states how much runs vary.

\b
A condition is a metric, one of > >= < <=, and a limit:
  step_time > +5%         against BEFORE    communication > 30%    of the step
  load.median >= 2ms      a time            mfu < 0.4              a number
Metrics: step_time, profiled_step, samples_per_s, tokens_per_s, mfu,
load.median, load.max, compute, communication, memcpy, data_loading,
overhead (all idle time), idle.CAUSE, and efficiency.FACTOR.
{_CAUSES}
FACTOR: parallel, load_balance, host, input, serialisation, transfer, au

\b
Exit codes: 3 a condition holds, 4 one cannot be evaluated, 1 or 2 bad input.

\b
perfkit compare traces/old traces/new --fail-on 'step_time > +5%' -o gates.xml
perfkit compare traces/old traces/new -f markdown >> "$GITHUB_STEP_SUMMARY"
"""


@app.command(help=_HELP)
def compare(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="Baseline (a trace, a run folder, or a folder of repeats).")
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="What to compare with it (the same kinds).")],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="Fail if this holds, such as 'step_time > +5%'; may be repeated."),
    ] = None,
    assume_noise: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="With fewer than three runs on a side, treat changes up to this, such as 3%, as noise.",
        ),
    ] = None,
    output: Annotated[list[Path] | None, output_option(Comparison)] = None,
    name: Annotated[str | None, format_option(Comparison)] = None,
    json: Json = False,
    step_marker: StepMarker = None,
    data_marker: DataMarker = None,
    kernel_rules: KernelRules = None,
    top: Annotated[int, typer.Option(min=1, help="Rows in ranked tables.")] = DEFAULT_TOP,
) -> None:
    """Report what changed between two runs; gates on it decide the exit code."""
    noise = noise_fraction(assume_noise)
    files = shown_and_written(Comparison, name, output, json)
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.pipeline.compare import compare as compare_runs

    comparison = compare_runs(
        before,
        after,
        fail_on=fail_on or [],
        step_marker=step_marker,
        data_marker=data_marker,
        kernel_rules=kernel_rules,
        assume_noise=noise,
    )
    write_files(comparison, files, top)
    sys.stdout.flush()
    raise_unless_passed(comparison.gates)


@history_app.command()
def history(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", hidden=True)],
    by: Annotated[
        Literal["run", "commit"], typer.Option(help="One point per run, or per commit with all its runs.")
    ] = "run",
    output: Annotated[list[Path] | None, output_option(History)] = None,
    name: Annotated[str | None, format_option(History)] = None,
    json: Json = False,
    last: Annotated[int, typer.Option(min=1, help="Rows in tables: the newest.")] = 30,
    step_marker: StepMarker = None,
    data_marker: DataMarker = None,
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
    from perfkit.pipeline.compare import history as history_of

    record = history_of(*paths, by=by, step_marker=step_marker, data_marker=data_marker, kernel_rules=kernel_rules)
    write_files(record, files, last)


def noise_fraction(text: str | None) -> float | None:
    """Return the fraction that a percentage stands for.

    Raises:
        UsageError: It is not a percentage.
    """
    if text is None:
        return None
    number = text.strip().removesuffix("%").strip()
    if not number.isascii() or not number.replace(".", "", 1).isdecimal():
        raise UsageError(f"--assume-noise {text}: expected a percentage such as 3%")
    return float(number) / 100


def raise_unless_passed(results: Sequence[GateResult]) -> None:
    """Raise unless every gate was passed.

    Raises:
        GateError: A condition holds.
        UndecidedGateError: None holds, and one could not be evaluated.
    """
    for state, error in (("failed", GateError), ("not_evaluated", UndecidedGateError)):
        gates = [gate for gate in results if gate.state == state]
        if gates:
            what = "; ".join(f"{gate.expression}: {gate.message}" for gate in gates)
            raise error(f"gate {state.replace('_', ' ')}: {what}")
