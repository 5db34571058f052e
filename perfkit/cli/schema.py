"""`perfkit schema`: the JSON Schema of perfkit's files."""

import json
from typing import Annotated, Literal

import typer

from perfkit.cli.typer_app import App

app = App()


Record = Literal["report", "comparison", "history", "hta", "sweep", "run"]


@app.command()
def schema(record: Annotated[Record, typer.Argument(help="Which file.")] = "report") -> None:
    """Print the JSON Schema (draft 2020-12) of one of the files that perfkit writes."""
    from perfkit.report import json_schema as described

    typer.echo(json.dumps(described.schema(record), indent=2))
