"""Names of events: texts by number (`StringIds`), as kineto would have written them.

torch's `emit_nvtx`, which `nsys profile --pytorch=autograd-nvtx` switches on, appends to the name of an operator what
identifies the call: `aten::addmm, seq = 12, op_id = 40, sizes = [[…]]` (`getNvtxStr` in torch/csrc/profiler). Without
it, a million events have as many names as there are operators.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.events import UNKNOWN
from perfkit.trace.intervals import Ints, distinct
from perfkit.trace.nsys.database import Database

_SEQUENCE, _OPERATOR = ", seq = ", ", op_id = "
_MOST_DIGITS: Final = 18
_NAMESPACES: Final = ("aten::", "c10d::", "autograd::", "torch::", "record_param_comms")
_RUNTIME_CALL: Final = re.compile(r"(cu[A-Za-z]\w*)_v\d{4,5}(_ptsz|_ptds)?")
"""With the version that CUPTI appends to the names of calls, and kineto does not: cudaLaunchKernel_v7000."""


class Name(NamedTuple):
    """A range's name, and what torch says of the operator in it."""

    text: str
    is_operator: bool
    sequence: int
    """autograd's number; -1 without."""


class Names:
    """The distinct names of a trace, and which of them are of operators."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._is_operator = bytearray()

    def add(self, name: str, *, is_operator: bool = False) -> int:
        index = self._index.setdefault(name, len(self._index))
        if index == len(self._is_operator):
            self._is_operator.append(is_operator)
        return index

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._index)

    @property
    def is_operator(self) -> NDArray[np.bool_]:
        return np.frombuffer(bytes(self._is_operator), np.bool_)


class Texts(NamedTuple):
    """Texts by number; columns of shape (t,)."""

    id: Ints
    """Ascending."""
    name: NDArray[np.int32]
    """Index into `Names`."""
    sequence: Ints
    """autograd's number in the text; -1 without."""

    def of(self, ids: Ints) -> tuple[NDArray[np.int32], Ints]:
        """Return the name and the sequence number of each text, all of which were asked for."""
        place = np.searchsorted(self.id, ids)
        return self.name[place], self.sequence[place]


def find_texts(database: Database, names: Names, used: Sequence[Ints]) -> Texts:
    """Look up the texts with the given numbers; those that the file lacks are called by their number.

    One pass over the table, which may have millions of texts of other use.
    """
    ids = distinct(np.concatenate([np.zeros(0, np.int64), *map(distinct, used)]))
    name, sequence = np.full(len(ids), UNKNOWN, np.int32), np.full(len(ids), UNKNOWN, np.int64)
    for (numbers,), texts in database.integers_and_text("StringIds", ["id"], "value") if len(ids) else ():
        place = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
        for row in np.flatnonzero(ids[place] == numbers).tolist():
            found = parse(texts[row])
            name[place[row]], sequence[place[row]] = (
                names.add(found.text, is_operator=found.is_operator),
                found.sequence,
            )
    for place in np.flatnonzero(name < 0).tolist():
        name[place] = names.add("" if ids[place] == UNKNOWN else f"#{ids[place]}")
    return Texts(ids, name, sequence)


def parse(text: str | bytes | None) -> Name:
    """Take a text apart; operators are what torch numbers, and what is in its namespaces."""
    if not isinstance(text, str):
        return Name("", False, UNKNOWN)
    if text.startswith("cu") and (versioned := _RUNTIME_CALL.fullmatch(text)):
        return Name(versioned[1], False, UNKNOWN)
    end, sequence = _call(text)  # not a regular expression: of millions of texts, each is another
    name = text if end < 0 else text[:end]
    is_operator = sequence >= 0 or (end >= 0 and "::" in name) or name.startswith(_NAMESPACES)
    return Name(name, is_operator, sequence)


def _call(text: str) -> tuple[int, int]:
    """Return where torch has appended the call, and autograd's number in it; -1 where there is none."""
    at = text.find(_SEQUENCE)
    if at >= 0:
        digits = text[at + len(_SEQUENCE) :][: _MOST_DIGITS + 1].partition(",")[0]
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS
        return (at, int(digits)) if is_number else (-1, UNKNOWN)
    at = text.find(_OPERATOR)
    return (at if at >= 0 and text[at + len(_OPERATOR) :][:1].isdecimal() else -1), UNKNOWN
