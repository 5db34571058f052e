"""What `--help` and `--help-all` print.

An option's `rich_help_panel` is its group in the full help. The short help has the options without a group and those
whose group is `Common`; of the text it has the first paragraph and the last, which are the examples. It stands in for
a full help that is longer than a screen.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

SCREEN_LINES: Final = 24
"""Lines of a terminal, since the VT100."""

_SHORT_WIDEST: Final = 26
"""Columns of an option's names in the short help: two of three descriptions of 80 columns then take one line."""
_ALL: Final = "--help-all"
_FIRST_SENTENCE: Final = re.compile(r".*?(?=[.;:](?:\s|$)|\s\[|$)", re.DOTALL)
_DEFAULT: Final = re.compile(r"  \[(default: (?!off)[^;\]]+)")

Row = tuple[str, str]


class Common(str):
    """The group of an option that many people use."""

    __slots__ = ()


class Command(TyperCommand):
    """A command whose `--help` fits on a screen, and whose `--help-all` has everything, by group."""

    # typer publishes the types of neither a context nor a formatter.
    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return what shows a help, in the order of the help."""
        del ctx
        return ["-h", "--help", _ALL]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and keep which help they ask for."""
        ctx.meta[_ALL] = _ALL in args
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        full = super().get_help(ctx)
        return full if ctx.meta.get(_ALL) or full.count("\n") < SCREEN_LINES else self._short_help(ctx)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        del ctx
        _write_text(formatter, self.paragraphs())

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write all arguments and options by group."""
        groups: dict[str, list[Row]] = {}
        for parameter, row in self._rows(ctx):
            own = "Arguments" if parameter.param_type_name == "argument" else "Options"
            groups.setdefault(parameter.rich_help_panel or own, []).append(row)
        _write_groups(formatter, groups)

    def paragraphs(self) -> list[str]:
        """Return the paragraphs of the text: the first says what the command does, the last shows examples."""
        return inspect.cleandoc(self.help or "").split("\n\n")

    def _short_help(self, ctx: Any) -> str:
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        text, rows = self.paragraphs(), self._rows(ctx)
        _write_text(formatter, text[:1] + text[1:][-1:])
        groups: dict[str, list[Row]] = {"Arguments": [], "Options": []}
        for parameter, row in rows:
            if parameter.param_type_name == "argument":
                groups["Arguments"].append(_shortened(row))
            elif not parameter.is_eager and isinstance(parameter.rich_help_panel, Common | None):
                groups["Options"].append(_shortened(row))
        _write_groups(formatter, groups, _SHORT_WIDEST)
        count = sum(parameter.param_type_name == "option" and not parameter.is_eager for parameter, _ in rows)
        formatter.write_paragraph()
        formatter.write(f"Details, and all {count} options: {ctx.command_path} {_ALL}\n")
        return str(formatter.getvalue()).rstrip("\n")

    def _rows(self, ctx: Any) -> list[tuple[Any, Row]]:
        """Return the arguments and options that the help shows."""
        found = [(parameter, parameter.get_help_record(ctx)) for parameter in self.get_params(ctx)]
        return [(parameter, row) for parameter, row in found if row is not None]


class Group(TyperGroup):
    """A group of commands, which has one help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; `--help-all` stands for `--help`."""
        return super().parse_args(ctx, ["--help" if word == _ALL else word for word in args[:1]] + args[1:])


def _write_text(formatter: Any, paragraphs: Sequence[str]) -> None:
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text("\n\n".join(paragraphs))


def _write_groups(formatter: Any, groups: dict[str, list[Row]], widest: int = 30) -> None:
    for title, rows in groups.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=widest)


def _shortened(row: Row) -> Row:
    """Return an option's names with its first sentence and its default."""
    names, text = row
    sentence = _FIRST_SENTENCE.match(text)
    default = _DEFAULT.search(text)
    return names, (sentence[0] + "." if sentence else "") + (f"  [{default[1]}]" if default else "")
