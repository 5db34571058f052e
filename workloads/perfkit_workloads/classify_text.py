"""Synthetic film reviews, each with a label, and the vocabulary that they are tokenised by. Does not import torch.

A review consists of three to seven clauses such as 'the acting was not very good', of which each praises or criticises.
Its label is what most of the clauses do, so a model has to read the whole review, negations included.
"""

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit_workloads.base import Arrays

PADDING: Final = "[PAD]"
FIRST: Final = "[CLS]"
LAST: Final = "[SEP]"
UNKNOWN: Final = "[UNK]"

_SUBJECTS: Final = (
    *("film", "movie", "story", "plot", "script", "ending", "beginning", "cast", "acting", "director", "music"),
    *("sound", "camera", "light", "dialogue", "pace", "humour", "drama", "action", "hero", "villain", "title"),
    *("trailer", "idea"),
)
_ADVERBS: Final = ("very", "really", "quite", "rather", "truly", "simply", "just", "so")
_PRAISE: Final = (
    *("good", "great", "fine", "excellent", "superb", "brilliant", "lovely", "charming", "clever", "funny", "moving"),
    *("fresh", "gripping", "warm", "strong"),
)
_CRITICISM: Final = (
    *("bad", "poor", "weak", "awful", "terrible", "boring", "dull", "slow", "flat", "silly", "clumsy", "stale"),
    *("tedious", "cold", "tiresome"),
)
_LINKS: Final = ("and", "but", "while", "though", ",")
_OTHER: Final = ("the", "was", "not", ".")

VOCABULARY: Final = (
    *(PADDING, FIRST, LAST, UNKNOWN),
    *sorted({*_SUBJECTS, *_ADVERBS, *_PRAISE, *_CRITICISM, *_LINKS, *_OTHER}),
)
"""Every token; its id is its index."""

LABELS: Final = ("negative", "positive")
CLAUSES: Final = (3, 5, 7)
"""Odd, so that there is always a majority."""

_CHOICES: Final = 6
"""Random numbers that determine one clause."""
_IDS: Final = {token: number for number, token in enumerate(VOCABULARY)}
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")


def tokenise(text: str) -> list[int]:
    """Return the ids of the words and punctuation marks of `text`; unknown ones have the id of `[UNK]`."""
    return [_IDS.get(token, _IDS[UNKNOWN]) for token in _TOKEN.findall(text.lower())]


def encode(text: str, length: int) -> list[int]:
    """Return `length` ids: `[CLS]`, those of `text` as far as they fit, `[SEP]`, then padding."""
    ids = [_IDS[FIRST], *tokenise(text)[: length - 2], _IDS[LAST]]
    return ids + [_IDS[PADDING]] * (length - len(ids))


def write_review(numbers: NDArray[Any]) -> tuple[str, int]:
    """Return a review and its label, an index into `LABELS`.

    Args:
        numbers: Random non-negative integers: the number of clauses, then six for each of the most clauses.
    """
    count = CLAUSES[int(numbers[0]) % len(CLAUSES)]
    clauses = [_write_clause(choice) for choice in numbers[1:].reshape(-1, _CHOICES)[:count].tolist()]
    words = [text if number == 0 else f"{link} {text}" for number, (text, link, _) in enumerate(clauses)]
    return " ".join(words) + " .", int(sum(praises for *_, praises in clauses) > count / 2)


def _write_clause(choice: list[int]) -> tuple[str, str, bool]:
    """Return a clause, the word that links it to the one before, and whether it praises."""
    subject, adverb, adjective, praise, negation, link = choice
    good, negated = praise % 2 == 1, negation % 4 == 0
    adjectives = _PRAISE if good else _CRITICISM
    words = [
        *("the", _SUBJECTS[subject % len(_SUBJECTS)], "was"),
        *(["not"] if negated else []),
        *(_ADVERBS[adverb % len(_ADVERBS)], adjectives[adjective % len(adjectives)]),
    ]
    return " ".join(words), _LINKS[link % len(_LINKS)], good != negated


def make_reviews(random: np.random.Generator, count: int, length: int) -> Arrays:
    """Return `count` reviews as `tokens`, (count, length), and their `label`, (count, 1)."""
    numbers = random.integers(0, 1 << 30, (count, 1 + max(CLAUSES) * _CHOICES))
    reviews = [write_review(row) for row in numbers]
    tokens = np.array([encode(text, length) for text, _ in reviews], dtype=np.int32)
    return {"tokens": tokens, "label": np.array([[label] for _, label in reviews], dtype=np.int32)}
