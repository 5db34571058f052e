"""How several ranks of which the same is known are named in one sentence."""

from collections.abc import Mapping, Sequence
from typing import Final

from perfkit.util.formatting import ranges

MOST_LISTED: Final = 8
_PLURALS: Final = (
    *(
        (f"has not {done} it: it {one}", f"have not {done} it: {several}")
        for done in ("issued", "sent", "received")
        for one, several in (("issued ", "they issued "), ("is in ", "they are in "), ("", "each "))
    ),
    (
        "runs, but did not write what it does (a call that does not return may hold Python's lock), so that it is not "
        "known what it has issued",
        "run, but did not write what they do (a call that does not return may hold Python's lock), so that it is not "
        "known what they have issued",
    ),
    ("ended because it lost its ", "ended because they lost their "),
    ("has left no record of its ", "have left no record of their "),
    ("has ", "have "),
    ("is ", "are "),
    ("was ", "were "),
    ("waits for its ", "each wait for their "),
    ("waits in ", "wait in "),
)
"""How what is said of one rank begins, and the same of several."""


def name_ranks(ranks: Sequence[int]) -> str:
    """Return `rank 3`, or `ranks 0-2`."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}"


def list_by_text(texts: Mapping[int, str]) -> str:
    """Return what is known of each rank, those of which it is the same together: `ranks 0-2 are in ...; rank 3 ...`."""
    ranks_of: dict[str, list[int]] = {}
    for rank, text in texts.items():
        ranks_of.setdefault(text, []).append(rank)
    return "; ".join(_plural(text, ranks) for text, ranks in list(ranks_of.items())[:MOST_LISTED])


def _plural(text: str, ranks: Sequence[int]) -> str:
    """Return what was said of one rank, of all these."""
    if len(ranks) > 1:
        for one, several in _PLURALS:
            if text.startswith(one):
                text = several + text.removeprefix(one)
                break
    return f"{name_ranks(ranks)} {text}"
