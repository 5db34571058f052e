"""Shell completion: answers what a shell asks when TAB is pressed.

`perfkit --install-completion` makes the shell call perfkit with `_PERFKIT_COMPLETE` set; typer has the protocol.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import typer

from perfkit.errors import PerfkitError

VARIABLE: Final = "_PERFKIT_COMPLETE"
_NOTHING_FOUND: Final = 1


def answer_shell(command: Any) -> int:
    """Print the completions of a command line that is being typed, and return the exit code.

    What is typed so far may be wrong: nothing is printed about that, because it would appear in the prompt.

    Args:
        command: The whole command line; typer does not publish its type.
    """
    logging.disable(logging.WARNING)
    try:
        command.main(args=[], prog_name="perfkit")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (PerfkitError, typer.TyperException):
        return _NOTHING_FOUND
    finally:
        logging.disable(logging.NOTSET)
    return 0


def among(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Return the `autocompletion` of an option or argument whose values are checked elsewhere than by typer."""

    def matching(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return matching
