"""`perfkit whatif`: predicts how long a step would take after a change."""

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.help_screen import Command
from perfkit.cli.output import Json, format_option, output_option, shown_and_written, write_files
from perfkit.cli.typer_app import App, DataMarker, KernelRules, MaxBytes, StepMarker
from perfkit.records.per_run.whatif import WhatIf
from perfkit.report import DEFAULT_TOP

app = App()


class _WithChanges(Command):
    """A command whose full help lists the changes, read only then: they need numpy."""

    def paragraphs(self) -> list[str]:
        """Return the text, with the changes before the examples."""
        from perfkit.engine.whatif.changes import help_lines

        *about, examples = super().paragraphs()
        lines = "\n".join(f"{example:<23} {text}" for example, text in help_lines())
        return [*about, f"\b\n{lines}", examples]


@app.command(cls=_WithChanges)
def whatif(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, a folder of traces, or a trace.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHANGE…",
            help="Changes (--help-all lists them) to apply together; without any, single changes are ranked.",
        ),
    ] = None,
    output: Annotated[list[Path] | None, output_option(WhatIf)] = None,
    name: Annotated[str | None, format_option(WhatIf)] = None,
    json: Json = False,
    step_marker: StepMarker = None,
    data_marker: DataMarker = None,
    kernel_rules: KernelRules = None,
    max_bytes: MaxBytes = None,
    top: Annotated[int, typer.Option(min=1, help="Rows in the ranking.")] = DEFAULT_TOP,
) -> None:
    """Predict how long a step would take after changes, by replaying its dependencies over all ranks.

    Without a change, the ten single changes that save most are ranked.

    \b
    perfkit whatif traces/my-run
    perfkit whatif traces/my-run rank3=healthy input=0
    perfkit whatif traces/my-run 'compute:aten::mm=0.5x' -o prediction.json
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = shown_and_written(WhatIf, name, output, json)
    # Imported late, so that `--help` and usage errors do not wait for numpy.
    from perfkit.cli.progress import bar
    from perfkit.pipeline.whatif import predict

    with bar() as progress:
        result = predict(
            path,
            changes or [],
            step_marker=step_marker,
            data_marker=data_marker,
            kernel_rules=kernel_rules,
            max_bytes=max_bytes,
            progress=progress,
        )
    write_files(result, files, top)
