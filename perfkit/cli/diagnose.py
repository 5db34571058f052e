"""`perfkit diagnose`: which rank keeps the others waiting, and where it is."""

from pathlib import Path
from typing import Annotated, Final

import typer

from perfkit.cli.output import Json, format_option, output_option, shown_and_written, write_files
from perfkit.cli.typer_app import App
from perfkit.errors import GateError, UndecidedGateError
from perfkit.records.hang import Diagnosis, Verdict
from perfkit.report import DEFAULT_TOP

app = App()

_EXIT_CODES: Final[dict[Verdict, int]] = {
    "agree": 0,
    "fault": GateError.exit_code,
    "unknown": UndecidedGateError.exit_code,
}


@app.command()
def diagnose(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run folder, or one with dumps of all ranks.")],
    output: Annotated[list[Path] | None, output_option(Diagnosis)] = None,
    name: Annotated[str | None, format_option(Diagnosis)] = None,
    json: Json = False,
    top: Annotated[int, typer.Option(min=1, help="Rows in the table of ranks.")] = DEFAULT_TOP,
) -> None:
    """Show which ranks of a hanging job wait for which, in which collective, and where the others are.

    Reads the files that `perfkit run` writes when a run hangs (rank<R>.hang.json), and dumps of torch's flight recorder
    from any job: pickles or JSON, with the rank at the end of the name (nccl_trace_rank_<R>). Nothing in a pickle is
    executed.

    Exit code: 0 if all ranks agree, 3 if they do not, 4 if too little was recorded to tell.

    \b
    perfkit diagnose traces/my-run
    perfkit diagnose /tmp/dumps -o diagnosis.json
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = shown_and_written(Diagnosis, name, output, json)
    from perfkit.engine.hangs.folder import diagnose_folder
    from perfkit.report.wording import worded

    result = worded(diagnose_folder(folder))
    write_files(result, files, top)
    if code := _EXIT_CODES[result.verdict]:
        raise typer.Exit(code)
