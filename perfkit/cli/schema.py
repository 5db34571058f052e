"""`perfkit schema`: the JSON Schema of perfkit's files."""

import json

import click


@click.command("schema")
@click.argument("record", type=click.Choice(["report", "run"]), default="report")
def command(record: str) -> None:
    """Print the JSON Schema (draft 2020-12) of a report, or of a run's run.json."""
    from perfkit.report.schema import schema

    click.echo(json.dumps(schema(record), indent=2))
