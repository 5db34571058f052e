"""`perfkit compare`: two runs or sets of repeats in, what changed out; gates for continuous integration."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.output import STDOUT, format_check, write_files
from perfkit.cli.typer_app import App
from perfkit.errors import GateError, UndecidedGateError
from perfkit.report import DEFAULT_TOP, builtin_suffixes, format_names, reporter, reporter_for
from perfkit.schema.comparison import Comparison

app = App()


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A trace, a run, or a folder of repeats.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Likewise.")],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="Fail if it holds, such as 'step_time > +5%'; may be repeated."),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=f"Write to FILE too, as its suffix says ({', '.join(builtin_suffixes(Comparison))}); may be repeated.",
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            metavar=f"<{'|'.join(format_names(Comparison))}>",
            callback=format_check(Comparison),
            help="What to print.",
        ),
    ] = "rich",
    step_marker: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Annotations that mark the steps, in place of `ProfilerStep#N`.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows in the ranked tables.")] = DEFAULT_TOP,
) -> None:
    """Say what changed between two runs, and whether it is more than noise.

    With three or more repeats on each side a change is told from noise; with fewer it is only shown.

    \b
    A condition is a figure, one of > >= < <=, and a limit:
      step_time > +5%         against BEFORE    communication > 30%    of the step
      load.median >= 2ms      a time            mfu < 0.4              a number
    Figures: step_time, samples_per_s, tokens_per_s, mfu, load.median, load.max,
    compute, communication, memcpy, data_loading, overhead, and efficiency.FACTOR
    with parallel, load_balance, host, input, serialisation, transfer or au.

    \b
    Exit codes: 3 a condition holds, 4 one could not be decided, 1 or 2 bad input.

    \b
    perfkit compare traces/old traces/new --fail-on 'step_time > +5%' -o gates.xml
    perfkit compare traces/old traces/new -f markdown >> "$GITHUB_STEP_SUMMARY"
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = [(path, reporter_for(Comparison, path)) for path in output or []]
    files.append((STDOUT, reporter(Comparison, name)))
    # Last, so that `--help` and a mistyped option do not wait for numpy.
    from perfkit.pipeline.compare import compare as compare_runs
    from perfkit.util.malloc import trim_large_allocations

    trim_large_allocations()
    found = compare_runs(before, after, fail_on=fail_on or [], step_marker=step_marker)
    write_files(found, files, top)
    sys.stdout.flush()
    _decide(found)


def _decide(found: Comparison) -> None:
    """Raise unless every gate was passed."""
    for state, error in (("failed", GateError), ("not_evaluated", UndecidedGateError)):
        gates = [gate for gate in found.gates if gate.state == state]
        if gates:
            what = "; ".join(f"{gate.expression}: {gate.message}" for gate in gates)
            raise error(f"gate {state.replace('_', ' ')}: {what}")
