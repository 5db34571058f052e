"""`perfkit schema`: prints the JSON Schema of perfkit's files."""

import json
from typing import Annotated, Literal

import typer

from perfkit.cli.typer_app import App

app = App()


Record = Literal[
    "report", "comparison", "history", "collectives", "hta", "plan", "whatif", "diagnosis", "hang", "sweep", "run"
]


@app.command()
def schema(record: Annotated[Record, typer.Argument(help="The record.")] = "report") -> None:
    """Print the JSON Schema (draft 2020-12) of a file format of perfkit."""
    from perfkit.report import json_schema

    typer.echo(json.dumps(json_schema.schema(record), indent=2))
