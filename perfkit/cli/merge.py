"""`perfkit merge`: all ranks of a run on one timeline."""

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.typer_app import App
from perfkit.errors import UsageError

app = App()

_DEFAULTS = {False: ".pftrace", True: ".json.gz"}


@app.command()
def merge(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of a run, or a trace.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="What to write: .pftrace, .json or .json.gz (without it PATH's name, here, as .pftrace).",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Without -o, as .json.gz: Chrome JSON, for other viewers than Perfetto's.")
    ] = False,
    ranks: Annotated[str | None, typer.Option(metavar="LIST", help="Ranks to show, such as 0,7 or 0-3 (all).")] = None,
    steps: Annotated[str | None, typer.Option(metavar="LIST", help="Steps to show, such as 12-14 (all).")] = None,
    step_marker: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Annotations that mark the steps, in place of `ProfilerStep#N`.")
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Refuse a trace with more text, decompressed; up to it, allow what looks like a bomb (64 GiB)."
        ),
    ] = None,
) -> None:
    """Write all ranks of a run to one timeline for the Perfetto UI.

    A process a rank, on one clock; above each rank's threads and streams perfkit's own tracks: steps, where the
    time goes, waiting for other ranks, bytes in flight, memory; arrows tie the ranks' collectives together.

    \b
    perfkit merge traces/my-run -o merged.pftrace
    perfkit merge traces/my-run --ranks 0,7 --steps 12-14
    perfkit view merged.pftrace
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    if output and json and not output.name.lower().endswith((".json", ".json.gz")):
        raise UsageError(f"-o {output} is no name for --json: use .json or .json.gz")
    # Last, so that `--help` and a mistyped option do not wait for numpy.
    from perfkit.cli.progress import bar
    from perfkit.storage.filenames import without_suffix
    from perfkit.timeline.merge import merge as merge_run
    from perfkit.util.formatting import escape_unprintable
    from perfkit.util.malloc import trim_large_allocations

    whole = path.resolve()
    name = whole.name if whole.is_dir() else without_suffix(whole.name)
    target = output or Path(name + _DEFAULTS[json])
    trim_large_allocations()
    with bar() as progress:
        merged = merge_run(
            path,
            target,
            ranks=ranks,
            steps=steps,
            step_marker=step_marker,
            max_bytes=max_bytes,
            progress=progress,
        )
    for warning in merged.warnings:
        typer.echo(f"perfkit: warning: {escape_unprintable(warning)}", err=True)
    what = "1 rank" if merged.ranks == 1 else f"{merged.ranks} ranks"
    typer.echo(f"{target}: {what}, {merged.slices:,} slices, {merged.bytes / 1e6:,.1f} MB; look: perfkit view {target}")
