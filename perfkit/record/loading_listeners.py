"""What is called where a program marks its loading of data (`perfkit.data_loading`), in the thread that loads."""

from collections.abc import Callable
from typing import Final

LISTENERS: Final[list[tuple[Callable[[], object], Callable[[], object]]]] = []


def while_loading(begin: Callable[[], object], end: Callable[[], object]) -> Callable[[], None]:
    """Call `begin` and `end` around what is marked, until what this returns is called."""
    listener = begin, end
    LISTENERS.append(listener)
    return lambda: LISTENERS.remove(listener)
