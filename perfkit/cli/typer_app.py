"""Building blocks of the command line: typer with plain help.

Rich help truncates long option names and descriptions at 80 columns, and interprets `[...]` in a text as markup.
"""

from functools import partial
from typing import Any, Final

import typer
from typer.core import TyperCommand

from perfkit.util.formatting import escape_unprintable

App: Final = partial(typer.Typer, add_completion=False, rich_markup_mode=None)
"""Builds an application; takes the arguments of `typer.Typer`."""


def print_line(text: str) -> None:
    """Print text on stdout; names of files and folders in it may contain anything."""
    typer.echo("\n".join(map(escape_unprintable, text.split("\n"))))


class Sectioned(TyperCommand):
    """A command with one section per `rich_help_panel` in its plain help."""

    # typer does not publish the type of a formatter.
    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or "Options", []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
