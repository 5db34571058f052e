"""The command line of a user's script, read without knowing its options: the one parser of what follows `--`."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_OPTION: Final = re.compile(r"--?[A-Za-z_]")
"""The begin of an option; a negative number is a value."""
_SETTER: Final = re.compile(r"-[A-Za-z]")
_SETTING: Final = re.compile(r"[A-Za-z_+~][\w./@]*=")
"""What follows an option of one letter is no value of it but a setting: `-m lr=1` (Hydra), `-P lr=1` (MLflow)."""
_END_OF_OPTIONS: Final = "--"


class ScriptArgument(NamedTuple):
    """One argument of a script."""

    name: str
    """As it is written: `--lr`, `lr` of `lr=1`, or `argument 3` of what has no name."""
    value: str | None
    """None of an option without one."""
    position: int
    """Of the token that holds the value, or the option."""

    def with_value(self, tokens: Sequence[str], value: str) -> list[str]:
        """Return the tokens with another value of this argument, in the form in which it is given."""
        is_joined = tokens[self.position] == f"{self.name}={self.value}"
        replaced = f"{self.name}={value}" if is_joined else value
        return [*tokens[: self.position], replaced, *tokens[self.position + 1 :]]


def read_arguments(tokens: Sequence[str]) -> list[ScriptArgument]:
    """Return the arguments of a script in their order: `--a=1`, `--a 1`, `-a 1`, `a=1`, `--flag`, and values alone.

    What follows an option is its value, whatever it contains, unless it is an option itself, a setting after one
    letter, or `--`, after which nothing is an option. Whether an option takes a value only the script knows: `--flag
    data` is read as a value.
    """
    found: list[ScriptArgument] = []
    options_end = tokens.index(_END_OF_OPTIONS) if _END_OF_OPTIONS in tokens else len(tokens)
    index = 0
    while index < len(tokens):
        token = tokens[index]
        name, equals, value = token.partition("=")
        is_option = index < options_end and _OPTION.match(token) is not None
        if equals and name:
            found.append(ScriptArgument(name, value, index))
        elif not is_option:
            found.append(ScriptArgument(f"argument {index + 1}", token, index))
        elif index + 1 < options_end and _is_value(token, tokens[index + 1]):
            index += 1
            found.append(ScriptArgument(token, tokens[index], index))
        else:
            found.append(ScriptArgument(token, None, index))
        index += 1
    return found


def _is_value(option: str, following: str) -> bool:
    sets = _SETTER.fullmatch(option) is not None and _SETTING.match(following) is not None
    return not sets and not _OPTION.match(following)


def name_arguments(tokens: Sequence[str]) -> dict[str, str]:
    """Return the values of a script's arguments by name: `on` of a flag, all values of a repeated option."""
    named: dict[str, str] = {}
    for argument in read_arguments(tokens):
        value = "on" if argument.value is None else argument.value
        named[argument.name] = f"{named[argument.name]}, {value}" if argument.name in named else value
    return named
