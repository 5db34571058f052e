"""`perfkit stacks`: writes attributed time as call stacks, for viewers of flame graphs."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from perfkit.base.standard_streams import write_stderr
from perfkit.cli.output import report_written
from perfkit.cli.typer_app import App, DataMarker, KernelRules, MaxBytes, RankList, StepMarker, read_options
from perfkit.errors import UsageError

app = App()


@app.command()
def stacks(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run folder, or a trace.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write: .speedscope.json, .collapsed or .txt (a line per stack), .pb.gz (pprof).",
        ),
    ],
    weight: Annotated[
        Literal["device", "exposed", "host", "communication-bytes"] | None,
        typer.Option(
            help="What is added up: device time; its exposed part; self time of operators, without a device; bytes of "
            "collectives.  "
            "[default: device, host without one]"
        ),
    ] = None,
    by: Annotated[
        Literal["python", "module", "operator"] | None,
        typer.Option(
            help="What a frame is: a function of the program, an nn.Module, or an operator or annotation, with the "
            "kernels in it.  "
            "[default: the first of these that was recorded]"
        ),
    ] = None,
    ranks: RankList = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Steps in which the host issued the work [default: all], such as 12-14, or 2:3."
        ),
    ] = None,
    step_marker: StepMarker = None,
    data_marker: DataMarker = None,
    kernel_rules: KernelRules = None,
    max_bytes: MaxBytes = None,
) -> None:
    """Write call stacks with their time, for speedscope, pprof and other viewers of flame graphs.

    Work of the backward pass has the stack of the forward operator that caused it. The totals are those of the report.

    \b
    perfkit stacks traces/my-run -o device.speedscope.json
    perfkit stacks traces/my-run -o exposed.collapsed --weight exposed --by module
    perfkit stacks traces/my-run -o rank0.pb.gz --ranks 0 --steps 12-14
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.base.formatting import duration, plural, size
    from perfkit.base.parsing import Ranges
    from perfkit.report.output_files import writing_bytes
    from perfkit.storage.discovery import find_run
    from perfkit.tools.stacks.collect import Selection, collect_stacks
    from perfkit.tools.stacks.writers import writer_for

    write = writer_for(output.name)
    selection = Selection(
        weight=weight,
        by=by,
        ranks=Ranges("--ranks", ranks) if ranks is not None else None,
        steps=Ranges("--steps", steps) if steps is not None else None,
        reading=read_options(step_marker, data_marker, kernel_rules, max_bytes),
    )
    if os.path.realpath(output) in map(os.path.realpath, find_run(path).traces):  # unlike `resolve`, of any links
        raise UsageError(f"-o {output} is one of the traces: give the file another name")
    found = collect_stacks(path, selection)
    with writing_bytes(output) as stream:
        write(found, path.resolve().name, stream)
    for warning in found.warnings:
        write_stderr(f"perfkit: warning: {warning}")
    total = size(found.total) if found.weight == "communication-bytes" else duration(found.total)
    count = sum(len(rank.stacks) for rank in found.ranks)
    ranks_ = plural(len(found.ranks), "rank")
    report_written(output, f"{ranks_}, {count:,} stacks by {found.by}, {found.weight} {total}")
