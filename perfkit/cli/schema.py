"""`perfkit schema`: prints the JSON Schema of perfkit's files."""

import json
from typing import Annotated, Any, Final, Literal

import typer

from perfkit.cli.typer_app import App
from perfkit.report.json_schema import RECORDS
from perfkit.report.json_schema import schema as schema_of

app = App()

Record: Any = Literal[*RECORDS]

_HELP: Final = f"""Print the JSON Schema (draft 2020-12) of a file format of perfkit.

RECORD is one of {", ".join(RECORDS)}; by default report.

\b
perfkit schema > report.schema.json
perfkit schema run > run.schema.json
"""


@app.command(help=_HELP)
def schema(record: Annotated[Record, typer.Argument(metavar="RECORD", hidden=True)] = "report") -> None:
    """Print a schema."""
    typer.echo(json.dumps(schema_of(record), indent=2))
