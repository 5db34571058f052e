"""`perfkit hta`: runs an analysis of Holistic Trace Analysis on the traces that perfkit finds."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from perfkit.cli.output import STDOUT, Json, write_files
from perfkit.cli.typer_app import App
from perfkit.errors import UsageError
from perfkit.records.tools import ExternalTable
from perfkit.report import DEFAULT_TOP, builtin_suffixes, reporter, reporter_for
from perfkit.tools.cross_check.hta import ANALYSES, TRACE_DIFF, installed, run_hta

app = App()

_NAMES: Any = Literal[*ANALYSES]
_LISTED = "\n".join(f"  {name:<19} {what}" for name, what in ANALYSES.items())
_HELP = f"""Run an analysis of Holistic Trace Analysis, and print its table, whose figures are HTA's, over all steps.
PATHS are traces, or the folder of one run, and of a second one for trace-diff; for a run with several profiling cycles,
the traces of one cycle. Needs the extra `hta`.

\b
ANALYSIS is one of
{_LISTED}

\b
perfkit hta queue-length traces/my-run
perfkit hta trace-diff traces/before traces/after
perfkit hta critical-path traces/my-run --step 7 -o critical.csv
"""


@app.command(help=_HELP)
def hta(
    analysis: Annotated[_NAMES, typer.Argument(metavar="ANALYSIS", hidden=True)],
    paths: Annotated[list[str], typer.Argument(metavar="PATHS", hidden=True)],
    step: Annotated[
        str | None, typer.Option(metavar="N", help="Step of critical-path, such as 7, or 2:3; default: the second.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=f"Write to FILE ({', '.join(builtin_suffixes(ExternalTable))}).",
        ),
    ] = None,
    json: Json = False,
    top: Annotated[int, typer.Option(min=1, help="Rows on the terminal.")] = DEFAULT_TOP,
) -> None:
    """Run one of HTA's analyses."""
    if step is not None and analysis != "critical-path":
        raise UsageError(f"--step applies to critical-path only: {analysis} covers all steps")
    if json and output:
        raise UsageError("--json is for stdout, which has nothing with -o: remove one of them")
    name = "json" if json else "rich"
    chosen = reporter_for(ExternalTable, output) if output else reporter(ExternalTable, name)
    from perfkit.base.parsing import parse_step
    from perfkit.pipeline.analyze import analyze
    from perfkit.storage.discovery import refuse_pipe

    installed()
    for path in paths:
        refuse_pipe(Path(path), f"hta {analysis}")
    runs = [run for run in analyze(*paths).runs if run.ranks]
    needed = 2 if analysis == TRACE_DIFF else 1
    if len(runs) != needed:
        words = "two, before and after" if needed == 2 else "exactly one"
        raise UsageError(f"{' '.join(paths)}: {len(runs)} runs with traces: give {words}")
    other = runs[1] if needed == 2 else None
    table = run_hta(runs[0], analysis, None if step is None else parse_step(step, "--step"), other=other)
    write_files(table, [(output or STDOUT, chosen)], top)
