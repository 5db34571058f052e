"""Match many names at once: a program may put a counter into its names, and have a million of them.

One search through all names, joined line by line, takes a tenth of the time of a call for each.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_LINE = "\n"


def starting_with(names: Sequence[str], pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
    """Return which names `pattern` matches at their start, shape (names,).

    Args:
        names: any texts.
        pattern: it has no look-behind and matches no line break; its `$` is the end of a name.
    """
    text = _LINE.join(names)
    if text.count(_LINE) != max(len(names) - 1, 0):  # a name has several lines itself
        return np.fromiter((pattern.match(name) is not None for name in names), np.bool_, len(names))
    found = np.zeros(len(names), np.bool_)
    starts = [match.start() for match in _at_line_starts(pattern).finditer(text)]
    if starts and names:
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)) + len(_LINE))
        found[np.searchsorted(ends, starts, side="right")] = True
    return found


def beginning_with(names: Sequence[str], *texts: str) -> NDArray[np.bool_]:
    """Return which names begin with one of the texts, shape (names,); of no names, one False to index with."""
    if not names:
        return np.zeros(1, np.bool_)
    return starting_with(names, re.compile("|".join(map(re.escape, texts))))


@lru_cache(maxsize=64)
def _at_line_starts(pattern: "re.Pattern[str]") -> "re.Pattern[str]":
    return re.compile(f"^(?:{pattern.pattern})", pattern.flags | re.MULTILINE)
