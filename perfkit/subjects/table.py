"""All subjects: one row each, in the order in which they are shown."""

from collections.abc import Collection, Iterator
from functools import cache
from typing import Final

from perfkit.engine.subject import Subject
from perfkit.plugins import Registry, instance_of

_NAMES: Final = (
    "ranks",
    "monitor",
    "critical-path",
    "pipelines",
    "steps",
    "pauses",
    "idle",
    "input",
    "memory",
    "phases",
    "work",
    "roofline",
    "collectives",
    "sharding",
    "comm-logs",
    "cross-check",
)

SUBJECTS: Final[Registry[Subject]] = Registry(
    "perfkit.subjects",
    "subject",
    {name: f"perfkit.subjects.{name.replace('-', '_')}:SUBJECT" for name in _NAMES},
    instance_of(Subject, "perfkit.Subject"),
)
"""Names of `--section`."""

Asked = Collection[str] | None
"""Names of subjects; None for all."""


def asked_subjects(asked: Asked) -> Iterator[tuple[str, Subject]]:
    """Yield the subjects that are asked for; those of plug-ins last, without any that cannot be loaded."""
    for name in SUBJECTS.builtin:
        if asked is None or name in asked:
            yield name, SUBJECTS.load(name)
    for name, subject in _added():
        if asked is None or name in asked:
            yield name, subject


@cache
def _added() -> tuple[tuple[str, Subject], ...]:
    """Return the subjects that packages add; each that cannot be loaded is warned of once."""
    return tuple(SUBJECTS.load_plugins())


def with_needed(asked: Asked) -> tuple[str, ...] | None:
    """Return the subjects that are asked for with those that they need, in the order of the table."""
    if asked is None:
        return None
    rows, found = dict(asked_subjects(None)), list(asked)
    for name in found:  # which grows
        found += (needed for needed in rows[name].needs if needed not in found)
    return tuple(name for name in rows if name in found)


def is_advised(asked: Asked) -> bool:
    """Return whether all subjects are computed that recommendations need."""
    return asked is None or set(answer_subjects()) <= set(asked)


@cache
def answer_subjects() -> tuple[str, ...]:
    """Return the names of the subjects that the short answer needs."""
    return tuple(name for name, subject in asked_subjects(None) if subject.in_answer)
