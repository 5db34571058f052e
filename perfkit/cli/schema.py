"""`perfkit schema`: prints the JSON Schema of perfkit's files."""

import json
from typing import Annotated, Final, Literal, get_args

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


_HELP: Final = f"""Print the JSON Schema (draft 2020-12) of a file format of perfkit.

RECORD is one of {", ".join(get_args(Record))}; by default report.

\b
perfkit schema > report.schema.json
perfkit schema run > run.schema.json
"""


@app.command(help=_HELP)
def schema(record: Annotated[Record, typer.Argument(metavar="RECORD", hidden=True)] = "report") -> None:
    """Print a schema."""
    from perfkit.report import json_schema

    typer.echo(json.dumps(json_schema.schema(record), indent=2))
