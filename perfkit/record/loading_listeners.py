"""What is told where a program marks its loading of data (`perfkit.data_loading`)."""

from collections.abc import Callable
from typing import Final, NamedTuple


class LoadingListener(NamedTuple):
    """Is told, in the thread that loads."""

    begin: Callable[[], object]
    end: Callable[[], object]


LISTENERS: Final[list[LoadingListener]] = []


def while_loading(begin: Callable[[], object], end: Callable[[], object]) -> Callable[[], None]:
    """Call `begin` and `end` around what is marked, until what this returns is called."""
    listener = LoadingListener(begin, end)
    LISTENERS.append(listener)
    return lambda: LISTENERS.remove(listener)
