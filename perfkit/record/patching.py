"""Puts functions of perfkit's around those of torch, and takes them away again."""

import functools
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def wrap_function(owner: Any, name: str, around: Callable[[Function], Function]) -> Callable[[], None]:
    """Replace a function, or a class's method, by what `around` returns for it.

    Returns:
        What undoes that, unless the program has replaced the function since: then it stays.
    """
    function = getattr(owner, name)
    hooked = functools.wraps(function)(around(function))
    setattr(owner, name, hooked)

    def undo() -> None:
        if getattr(owner, name) is hooked:
            setattr(owner, name, function)

    return undo
