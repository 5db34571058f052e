"""`perfkit merge`: writes all ranks of a run to one timeline."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import to_builtins

from perfkit.base.formatting import escape_unprintable, plural, shell_word, size
from perfkit.base.standard_streams import write_stderr
from perfkit.cli.output import Json, report_written
from perfkit.cli.typer_app import App, DataMarker, KernelRules, MaxBytes, RankList, StepMarker, print_line

app = App()

_SUFFIX = ".pftrace"


@app.command()
def merge(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run folder, or a trace.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write: .pftrace; .json or .json.gz for viewers other than Perfetto; .et: the graph of the "
            "steps, for simulators [default: PATH's name with .pftrace, in the working directory].",
        ),
    ] = None,
    json: Json = False,
    ranks: RankList = None,
    steps: Annotated[
        str | None, typer.Option(metavar="LIST", help="Steps to include, such as 12-14, or 2:3 [default: all].")
    ] = None,
    step_marker: StepMarker = None,
    data_marker: DataMarker = None,
    kernel_rules: KernelRules = None,
    max_bytes: MaxBytes = None,
) -> None:
    """Write all ranks of a run to one timeline for the Perfetto UI.

    One process per rank, on a common clock. Above each rank's threads and streams are perfkit's tracks: steps, time
    by category, waiting for other ranks, modules, bytes in flight, memory, the workers of data loaders. Arrows link the
    ranks' collectives.

    \b
    perfkit merge traces/my-run -o merged.pftrace
    perfkit merge traces/my-run --ranks 0,7 --steps 12-14
    perfkit merge traces/my-run -o run.et     for simulators, a file per rank
    perfkit view merged.pftrace --rank 3      opens with rank 3 expanded
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.cli.progress import bar
    from perfkit.storage.filenames import without_suffix
    from perfkit.tools.merge.merge import merge as merge_run

    whole = path.resolve()
    name = whole.name if whole.is_dir() else without_suffix(whole.name)
    target = output or Path(name + _SUFFIX)
    with bar() as progress:
        merged = merge_run(
            path,
            target,
            ranks=ranks,
            steps=steps,
            step_marker=step_marker,
            data_marker=data_marker,
            kernel_rules=kernel_rules,
            max_bytes=max_bytes,
            progress=progress,
        )
    for warning in merged.warnings:
        write_stderr(f"perfkit: warning: {warning}")
    of_ranks = plural(merged.ranks, "rank")
    if target.suffix.lower() == ".et":
        first = target.with_suffix(".0.et")
        write_stderr(f"Wrote {first} and on ({size(merged.bytes)}): {of_ranks}, {merged.slices:,} nodes")
    else:
        expanded = "" if merged.latest_rank is None else f" --rank {merged.latest_rank}"
        opens = f"open: perfkit view {shell_word(target)}{expanded}"
        report_written(target, f"{of_ranks}, {merged.slices:,} slices; {opens}")
    if json:
        print_line(msgspec.json.encode({"path": escape_unprintable(str(target)), **to_builtins(merged)}).decode())
