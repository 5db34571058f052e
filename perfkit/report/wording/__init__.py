"""The words of what analysis and rules found: no other part makes sentences of facts.

To word a fact, add a row to `SENTENCES` or `REMEDIES` of the module of its subject: a template with the fact's values
(`perfkit.records.facts`), or a function of them.
"""

from collections.abc import Iterable
from typing import Final

from perfkit.records.facts import Facts, Words
from perfkit.records.facts import in_words as fill
from perfkit.report.wording import communication, device, idle, loading, pipelines, stragglers, verdict

_SUBJECTS: Final = (communication, device, idle, loading, pipelines, stragglers)
SENTENCES: Final[Words] = {
    name: words for subject in (*_SUBJECTS, verdict) for name, words in subject.SENTENCES.items()
}
REMEDIES: Final[Words] = {name: words for subject in _SUBJECTS for name, words in subject.REMEDIES.items()}


def in_words(facts: Facts) -> str:
    """Return what was found as a sentence, or a part of it."""
    return fill(facts, SENTENCES)


def clauses(several: Iterable[Facts]) -> str:
    """Return a sentence of several clauses."""
    return "; ".join(map(in_words, several))
