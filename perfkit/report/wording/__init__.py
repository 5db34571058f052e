"""The words of what analysis and rules found: no other part makes sentences of facts.

To word a fact, add a row to `SENTENCES` or `REMEDIES` of the module of its subject: a template with the fact's values
(`perfkit.tables.words`), or a function of them.
"""

from collections.abc import Iterable
from operator import is_not
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perfkit.records.facts import Facts, Statement, Words
from perfkit.report.wording import (
    communication,
    device,
    hangs,
    idle,
    ledger,
    loading,
    pipelines,
    reasons,
    several_runs,
    stragglers,
    trust,
)
from perfkit.tables.words import in_words as fill

_SUBJECTS: Final = (communication, device, idle, loading, pipelines, stragglers)
SENTENCES: Final[Words] = {
    name: words
    for subject in (*_SUBJECTS, ledger, trust, reasons, several_runs, hangs)
    for name, words in subject.SENTENCES.items()
}
REMEDIES: Final[Words] = {name: words for subject in _SUBJECTS for name, words in subject.REMEDIES.items()}
RecordT = TypeVar("RecordT")


def in_words(facts: Facts) -> str:
    """Return what was found as a sentence, or a part of it."""
    return fill(facts, SENTENCES)


def clauses(several: Iterable[Facts]) -> str:
    """Return a sentence of several clauses."""
    return "; ".join(map(in_words, several))


def worded(record: RecordT) -> RecordT:
    """Return a record, or a list of them, with the statements in it as texts."""
    return _worded(record)  # type: ignore[no-any-return]


def _worded(value: Any) -> Any:
    if isinstance(value, Statement):
        return in_words((value.fact,))
    if isinstance(value, dict):
        parts = [_worded(part) for part in value.values()]
        return dict(zip(value, parts, strict=True)) if any(map(is_not, parts, value.values())) else value
    if isinstance(value, list | tuple):
        parts = [_worded(part) for part in value]
        return type(value)(parts) if any(map(is_not, parts, value)) else value
    if isinstance(value, Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        changed = {name: new for name, old in fields if (new := _worded(old)) is not old}
        return replace(value, **changed) if changed else value
    return value
