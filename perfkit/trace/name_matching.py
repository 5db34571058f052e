"""Match many names at once: a program may put a counter into its names, and have a million of them.

One search through all names, joined line by line, takes a tenth of the time of a call for each. Names that differ in
their digits only are matched once: a name's shape has 0 for each of its digits. A pattern that mentions no digit
matches either all names of a shape or none of them; one that does can only match names whose shape it matches with all
of its own digits 0.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LINE: Final = "\n"
_ZEROS: Final = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_DIGIT: Final = re.compile("[0-9]")
_UNSURE: Final = re.compile(r"\\[0-9xuU]|\(\?<?!|\(\?>|\(\?\(|\[\^|[*+?}]\+|\{")
"""What makes a pattern with digits more than conditions on single characters: references and codes, negations, what
never gives back, counts."""
_REFERS: Final = re.compile(r"\(\?P=|\\N")
"""What may tell digits apart without containing any."""

_Match = Callable[[Sequence[str], "re.Pattern[str]"], NDArray[np.bool_]]


def starting_with(names: Sequence[str], pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
    """Return which names `pattern` matches at their start, shape (names,).

    Args:
        pattern: it has no look-behind and matches no line break; its `$` is the end of a name.
    """
    text = _LINE.join(names)
    if _has_line_breaks(text, names):
        return np.fromiter((pattern.match(name) is not None for name in names), np.bool_, len(names))
    found = np.zeros(len(names), np.bool_)
    breaks = [match.start() for match in _after_line_breaks(pattern).finditer(_LINE + text)] if names else ()
    if breaks:
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)) + len(_LINE))
        found[np.searchsorted(ends, breaks, side="right")] = True
    return found


def _has_line_breaks(text: str, names: Sequence[str]) -> bool:
    return text.count(_LINE) != max(len(names) - 1, 0)


@lru_cache(maxsize=64)
def _after_line_breaks(pattern: "re.Pattern[str]") -> "re.Pattern[str]":
    # Not `^`, with which `re` tries the pattern at every character: a literal it looks for in a third of the time.
    return re.compile(rf"\n(?={pattern.pattern})", pattern.flags | re.MULTILINE)


def _containing(names: Sequence[str], pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
    return np.fromiter((pattern.search(name) is not None for name in names), np.bool_, len(names))


class NameShapes:
    """Names by their shapes.

    Args:
        parts: the shapes of consecutive parts of the names, if known.
    """

    def __init__(self, names: Sequence[str], parts: Sequence["NameShapes"] = ()) -> None:
        shapes = [shape for part in parts for shape in part.distinct] if parts else _shapes_of(names)
        number = {shape: place for place, shape in enumerate(dict.fromkeys(shapes))}
        self.names = names
        self.distinct: tuple[str, ...] = tuple(number)
        """The distinct shapes, in order of their first names."""
        self.of: NDArray[np.int32] = np.fromiter(map(number.__getitem__, shapes), np.int32, len(shapes))
        """The place in `distinct` of each name's shape; shape (names,)."""
        if parts:
            first = np.cumsum([0, *(len(part.distinct) for part in parts)])
            self.of = np.concatenate([self.of[part.of + k] for part, k in zip(parts, first[:-1], strict=True)])

    def starting_with(self, pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
        """Return which names a pattern, as the function's, matches at their start; of no names, one False to index."""
        return self._matching(pattern, starting_with)

    def beginning_with(self, *texts: str) -> NDArray[np.bool_]:
        """Return which names begin with one of the texts; of no names, one False to index with."""
        return self.starting_with(_beginning(texts))

    def containing(self, pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
        """Return in which names any pattern matches somewhere; of no names, one False to index with."""
        return self._matching(pattern, _containing)

    def _matching(self, pattern: "re.Pattern[str]", match: _Match) -> NDArray[np.bool_]:
        if not self.names:
            return np.zeros(1, np.bool_)
        general = with_zeros(pattern)
        if general is None:
            return match(self.names, pattern)
        found = match(self.distinct, general)[self.of]
        if general is not pattern:
            maybe = np.flatnonzero(found)
            found[maybe] = match([self.names[name] for name in maybe.tolist()], pattern)
        return found


def _shapes_of(names: Sequence[str]) -> list[str]:
    text = _LINE.join(names)
    if _has_line_breaks(text, names):
        return [_shape_of(name) for name in names]
    return _shape_of(text).split(_LINE) if names else []


def _shape_of(text: str) -> str:
    # Bytes: translating a text takes many times as long if any character in it is not ASCII.
    return text.encode("utf-8", "surrogatepass").translate(_ZEROS).decode("utf-8", "surrogatepass")


@lru_cache(maxsize=64)
def _beginning(texts: tuple[str, ...]) -> "re.Pattern[str]":
    return re.compile("|".join(map(re.escape, texts)))


@lru_cache(maxsize=256)
def with_zeros(pattern: "re.Pattern[str]") -> "re.Pattern[str] | None":
    """Return what matches the shape of every name that `pattern` matches; None if that cannot be told.

    It is `pattern` itself if no digit is in it: then it matches a name if, and only if, it matches the name's shape.
    """
    text = pattern.pattern
    if _REFERS.search(text):
        return None
    if not _DIGIT.search(text):
        return pattern
    if _UNSURE.search(text):
        return None
    try:
        return re.compile(_DIGIT.sub("0", text), pattern.flags)
    except re.error:  # two groups whose names differ in a digit
        return None
