"""Spells mangled names of C++ functions as they were declared.

CUPTI gives the names of kernels as declared; ROCm, and CUPTI for some libraries, as they are in the object file.
"""

import re
from collections.abc import Iterable
from typing import Final

from perfkit.trace.symbols.cursor import NotReadableError
from perfkit.trace.symbols.name_parser import NameParser

MANGLED: Final = "_Z"
"""What a mangled name begins with."""
LONGEST: Final = 8_192
"""Longer mangled names stay as they are."""
_MOST_WORK: Final = 30_000_000
"""Characters spelled for all names of a trace, intermediate parts included: a few seconds. Further names stay."""
_CLONE: Final = re.compile(r"\.[A-Za-z_]\w*(?:\.\d+)*|\.\d+")
"""What a compiler appends to a copy of a function: `.kd` (AMD's kernel descriptor), `.constprop.0`."""


def demangle(name: str) -> str:
    """Return a mangled name as it was declared, or the name itself if it is not mangled or cannot be read.

    The part of the Itanium C++ ABI is read that occurs in names of kernels: no expressions, such as `decltype`.
    """
    return _spell(name)[0]


def readable_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names of a trace, those that are mangled as they were declared.

    Each stays as it is if another name is spelled so too, because rows of a table are told apart by their names.
    """
    found = list(names)
    mangled = [place for place, name in enumerate(found) if name.startswith(MANGLED)]
    taken, work = set(found) if mangled else set(), 0
    for place in mangled:
        spelled, cost = _spell(found[place])
        if spelled not in taken:
            found[place] = spelled
            taken.add(spelled)
        work += cost
        if work > _MOST_WORK:
            break
    return tuple(found)


def _spell(name: str) -> tuple[str, int]:
    """Return a readable name, and the characters that were spelled for it."""
    if not name.startswith(MANGLED) or len(name) > LONGEST:
        return name, 0
    parser = NameParser(name.removeprefix(MANGLED))
    try:
        found = parser.encoding()
    except (NotReadableError, ValueError, RecursionError):
        return name, parser.work + len(name)
    clones = _CLONE.findall(parser.rest)
    if "".join(clones) != parser.rest:
        found, clones = name, []
    return found + "".join(f" [clone {clone}]" for clone in clones), parser.work + len(name)
