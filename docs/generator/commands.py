"""The reference of commands: what each prints with `--help-all`."""

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from unittest.mock import patch

from perfkit.cli import COMMANDS, main


def reference() -> str:
    """Return one section per command and sub-command, in the order of `perfkit --help`, as Markdown."""
    sections = [("perfkit", help_of()), *((f"perfkit {' '.join(path)}", text) for path, text in _commands())]
    return "\n".join(f"## {name}\n\n```text\n{text}```\n" for name, text in sections)


def help_of(*path: str) -> str:
    """Return what a command prints with `--help-all`, on a terminal of 80 columns."""
    printed = io.StringIO()
    with redirect_stdout(printed), patch.dict(os.environ, {"COLUMNS": "80"}):
        code = main([*path, "--help-all"])
    if code:
        raise RuntimeError(f"perfkit {' '.join(path)} --help-all ends with {code}")
    return printed.getvalue()


def _commands() -> Iterator[tuple[tuple[str, ...], str]]:
    for name in COMMANDS:
        text = help_of(name)
        yield (name,), text
        for child in subcommands(text):
            yield (name, child), help_of(name, child)


def subcommands(text: str) -> list[str]:
    """Return the names in the section `Commands` of a help text."""
    section = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  (\S+)", section[1], re.MULTILINE) if section else []
