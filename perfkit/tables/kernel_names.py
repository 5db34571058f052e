"""Shortens long kernel names without losing the parts that distinguish them."""

import re

from rich.cells import cell_len, set_cell_size

from perfkit.base.formatting import escape_unprintable
from perfkit.records.cross_rank import MatchedCollectiveStat
from perfkit.records.rank import CollectiveStat

LONGEST = 100
"""Maximum width of a name in cells, however wide the terminal: numbers stay near their names."""

_BREAK = re.compile(r"[ /_-]")
_PARAMETERS_AT_END = re.compile(r"\)( const)?( \[clone [^\[\]]*\])*$")
"""No bracket is within another: without that, every `)` of a long text would be tried up to its end."""
_PYTHON = re.compile(r"(?:.*/)?([^/]+\.py\(\d+\): .+)")
"""A Python function as torch.profiler writes it, from the name of its file."""
_QUALIFIER = re.compile(r"\(anonymous namespace\)::|\b[A-Za-z_]\w*::(?=[A-Za-z_(])")


def shorten(name: str, width: int) -> str:
    """Return `name` within `width` terminal cells.

    What all kernel names share is dropped first: `void`, the parameter list, namespaces; then the end of the template
    arguments. A Python function loses the folders of its file. A name that is still too long loses its middle.
    """
    if cell_len(name) <= width:
        return name
    if match := _PYTHON.fullmatch(name):
        return _without_middle(match[1], width)
    bare = _QUALIFIER.sub("", _without_parameters(name.removeprefix("void ")))
    if cell_len(bare) <= width:
        return bare
    base, bracket, arguments = bare.partition("<")
    room = width - cell_len(base) - 3
    if not bracket or room < 0:
        return _without_middle(base, width)
    return f"{base}<{_head(arguments, room)}…>"


def fold(text: str, width: int) -> str:
    """Return `text` in lines of at most `width` cells, broken after a space, hyphen, slash or underscore."""
    lines, start = [], 0
    while (most := _line_end(text, start, width)) < len(text):
        end = max((m.end() for m in _BREAK.finditer(text, start, most)), default=most)
        lines.append(text[start:end].rstrip())
        start = next((place for place in range(end, len(text)) if not text[place].isspace()), len(text))
    return "\n".join([*lines, text[start:]])


def _line_end(text: str, start: int, width: int) -> int:
    """Return where a line from `start` is full, with the marks of no width after it; it has at least one character.

    It looks no further than the line: a text may be very long.
    """
    total = 0
    for place in range(start, len(text)):
        total += cell_len(text[place])
        if total > width:
            return max(place, start + 1)
    return len(text)


def _without_parameters(name: str) -> str:
    """Return a C++ function's name up to its parameter list: the first parenthesis outside of angle brackets.

    Other names have parentheses within: `train.py(7): main`, `enumerate(DataLoader)#__next__`.
    """
    if not _PARAMETERS_AT_END.search(name):
        return name
    depth = 0
    for i, character in enumerate(name):
        if character == "(" and depth == 0 and i > 0 and not name.startswith("(anonymous namespace)", i):
            return name[:i].rstrip()
        depth += {"<": 1, ">": -1}.get(character, 0)
    return name


def _without_middle(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return name
    head = _head(name, width // 2)
    room = width - 1 - cell_len(head)
    tail = name[max(0, len(name) - room) :]
    while cell_len(tail) > room:
        tail = tail[1:]
    return f"{head}…{tail}"


def _head(text: str, cells: int) -> str:
    """Return as much of the start of `text` as `cells` hold (a wide character takes two)."""
    return set_cell_size(text, min(cells, cell_len(text))).rstrip()


def collective_name(row: CollectiveStat | MatchedCollectiveStat) -> str:
    """Return a collective's operator, marked if it is a gradient bucket of DDP."""
    return escape_unprintable(row.operator) + (" (DDP)" if row.ddp_bucket else "")
