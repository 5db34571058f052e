"""`perfkit schema`: the JSON Schema of perfkit's files."""

import json
from typing import Annotated, Literal

import typer

from perfkit.cli.app import App

app = App()


Record = Literal["report", "comparison", "history", "hta", "run"]


@app.command()
def schema(record: Annotated[Record, typer.Argument(help="Which file.")] = "report") -> None:
    """Print the JSON Schema (draft 2020-12) of a report, a comparison, a history, a table of HTA, or run.json."""
    from perfkit.report import schema as described

    typer.echo(json.dumps(described.schema(record), indent=2))
