"""Makes long kernel names fit without losing the parts that distinguish them."""

import re
from itertools import pairwise

from rich.cells import cell_len, set_cell_size

from perfkit.base.formatting import escape_unprintable
from perfkit.records.cross_rank import MatchedCollectiveStat
from perfkit.records.rank import CollectiveStat

LONGEST = 100
"""Maximum width of a name in cells, however wide the terminal: numbers stay near their names."""

_BREAK = re.compile(r"[ /#-]|(?<=[^\W_])_+|[.,:](?![\d:. ])|(?=[(<](?![)>]))|(?<=[a-z]{2})(?=[A-Z][a-z])")
"""Ends of the parts of a text, at which a line may end; none is within a figure or its unit."""
_PARAMETERS_AT_END = re.compile(r"\)( const)?( \[clone [^\[\]]*\])*$")
"""No bracket is within another: without that, every `)` of a long text would be tried up to its end."""
_PYTHON = re.compile(r"(?:.*/)?([^/]+\.py\(\d+\): .+)")
"""A Python function as torch.profiler writes it, from the name of its file."""
_QUALIFIER = re.compile(r"\(anonymous namespace\)::|\b[A-Za-z_]\w*::(?=[A-Za-z_(])")
_HANG = 2
"""Spaces before what continues a name on its next line."""


def shorten(name: str, width: int) -> str:
    """Return `name` within `width` terminal cells, if that is possible without what distinguishes it.

    What all kernel names share is dropped first (see `plain`), then the end of the template arguments. Nothing else is
    left out, whatever the width.
    """
    if cell_len(name) <= width:
        return name
    bare = plain(name)
    base, bracket, arguments = bare.partition("<")
    if cell_len(bare) <= width or not bracket:
        return bare
    return f"{base}<{_head(arguments, max(width - cell_len(base) - 3, 0))}…>"


def plain(name: str) -> str:
    """Return a name without what says little: `void`, parameter list and namespaces; the folders of a Python file."""
    if match := _PYTHON.fullmatch(name):
        return match[1]
    return _QUALIFIER.sub("", _without_parameters(name.removeprefix("void ")))


def fold(text: str, width: int, hang: int = 0) -> str:
    """Return `text` in lines of at most `width` cells, broken between its parts; lines after the first are indented."""
    lines, start, room = [], 0, width
    while (most := _line_end(text, start, room)) < len(text):
        ends = (found.end() for found in _BREAK.finditer(text, start, most + 2))
        end = max((end for end in ends if start < end <= most), default=most)
        lines.append(text[start:end].rstrip())
        start = next((place for place in range(end, len(text)) if not text[place].isspace()), len(text))
        room = max(width - hang, 1)
    return f"\n{' ' * hang}".join([*lines, text[start:]])


def fold_name(name: str, width: int) -> str:
    """Return `name`, `plain` if it is wider than `width` cells, and then in lines, indented further after the first."""
    if cell_len(name) <= width:
        return name
    indent, bare = _indented(name)
    indent = indent[: width // 2]
    lines = fold(bare, max(width - len(indent), 1), hang=min(_HANG, width // 4)).split("\n")
    return "\n".join(indent + line for line in lines)


def widest_part(name: str) -> int:
    """Return the least width at which `fold_name` breaks a name between its parts only."""
    indent, bare = _indented(name)
    ends = [0, *(found.end() for found in _BREAK.finditer(bare)), len(bare)]
    first, *others = (cell_len(bare[start:end].rstrip()) for start, end in pairwise(ends))
    return len(indent) + max(first, _HANG + max(others, default=0))


def _indented(name: str) -> tuple[str, str]:
    bare = name.lstrip()
    return name[: len(name) - len(bare)], plain(bare)


def _line_end(text: str, start: int, width: int) -> int:
    """Return where a line from `start` is full, with the marks of no width after it; it has at least one character.

    It looks no further than the line: a text may be very long.
    """
    total = 0
    if text.isascii():
        return min(start + max(width, 1), len(text))
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


def _head(text: str, cells: int) -> str:
    """Return as much of the start of `text` as `cells` hold (a wide character takes two)."""
    return set_cell_size(text, min(cells, cell_len(text))).rstrip()


def collective_name(row: CollectiveStat | MatchedCollectiveStat) -> str:
    """Return a collective's operator, marked if it is a gradient bucket of DDP."""
    return escape_unprintable(row.operator) + (" (DDP)" if row.ddp_bucket else "")
