"""`perfkit schema`: prints the JSON Schema of perfkit's files."""

import json
from typing import Annotated, Literal

import typer

from perfkit.cli.typer_app import App

app = App()


Record = Literal[
    "report",
    "comparison",
    "history",
    "collectives",
    "input",
    "hta",
    "plan",
    "whatif",
    "doctor",
    "diagnosis",
    "hang",
    "sweep",
    "sweep-answer",
    "run",
]


@app.command()
def schema(record: Annotated[Record, typer.Argument(help="The record.")] = "report") -> None:
    """Print the JSON Schema (draft 2020-12) of a file format of perfkit.

    \b
    perfkit schema > report.schema.json
    perfkit schema run > run.schema.json
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    from perfkit.report import json_schema

    typer.echo(json.dumps(json_schema.schema(record), indent=2))
