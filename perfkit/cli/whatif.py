"""`perfkit whatif`: predicts how long a step would take after a change."""

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.output import Json, format_option, output_option, shown_and_written, write_files
from perfkit.cli.typer_app import App, KernelRules, MaxBytes, StepMarker
from perfkit.records.per_run.whatif import WhatIf
from perfkit.report import DEFAULT_TOP

app = App()


@app.command()
def whatif(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, a folder of traces, or a trace.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="CHANGE…", help="Changes to apply together; without any, single changes are ranked."),
    ] = None,
    output: Annotated[list[Path] | None, output_option(WhatIf)] = None,
    name: Annotated[str | None, format_option(WhatIf)] = None,
    json: Json = False,
    step_marker: StepMarker = None,
    kernel_rules: KernelRules = None,
    max_bytes: MaxBytes = None,
    top: Annotated[int, typer.Option(min=1, help="Rows in the ranking.")] = DEFAULT_TOP,
) -> None:
    """Predict how long a step would take after changes, by replaying its dependencies over all ranks.

    Without a change, the ten single changes that save most are ranked.

    \b
    compute:NAME=0.5x       operators or kernels, by name or glob (aten::*)
    rank3=healthy, rank3=2x a rank's own work: as on the other ranks, or scaled
    collective[dp]=0        transfers, by dimension or operator
    bandwidth[shard]=2x     the part of transfers that grows with their size
    input=0, input=0.5x     loading data
    idle:host_work=0        idle time by cause, or by what ran (idle:validate=0)
    sync=removed            the host no longer waits for the device
    kernels<5us=fused       short consecutive kernels become one
    profiler=removed        the profiler's own work
    overlap=removed         communication after backward instead of during it
    accumulate=4            micro-steps per step
    ranks=64                collectives among this many ranks
    bucket_cap=50MB         DDP's buckets
    module:layers.*=0.7x    modules by name or class; needs --with-stack

    \b
    perfkit whatif traces/my-run
    perfkit whatif traces/my-run rank3=healthy input=0
    perfkit whatif traces/my-run 'compute:aten::mm=0.5x' -o prediction.json
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = shown_and_written(WhatIf, name, output, json)
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.base.process import trim_large_allocations
    from perfkit.cli.progress import bar
    from perfkit.pipeline.whatif import predict

    trim_large_allocations()
    with bar() as progress:
        result = predict(
            path,
            changes or [],
            step_marker=step_marker,
            kernel_rules=kernel_rules,
            max_bytes=max_bytes,
            progress=progress,
        )
    write_files(result, files, top)
