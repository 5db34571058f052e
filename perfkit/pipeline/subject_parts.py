"""Compute what subjects tell of a trace or a run."""

from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from perfkit.errors import PluginError
from perfkit.records.common import Observation
from perfkit.report.wording import worded
from perfkit.subjects.table import SUBJECTS, Asked, asked_subjects

T = TypeVar("T")


class Parts(NamedTuple):
    """What subjects tell."""

    fields: dict[str, Any]
    """Of perfkit's own subjects, by the name of a field of the record that they fill."""
    added: dict[str, Any]
    """Of the others, as built-in types, by the name of the subject."""
    failed: list[Observation]
    """Subjects of packages that failed."""


def compute_parts(asked: Asked, side: Literal["rank", "run"], context: Any, fields: Collection[str]) -> Parts:
    """Compute one side of the subjects that are asked for.

    Args:
        asked: names of subjects; None for all.
        side: what a trace tells, or what the ranks tell together.
        context: a `TraceContext` or a `RunContext`.
        fields: the fields of the record that perfkit's own subjects fill.
    """
    parts = Parts({}, {}, [])
    for name, subject in asked_subjects(asked):
        own = name in SUBJECTS.builtin
        functions: dict[str, Callable[[Any], Any]] = dict(getattr(subject, side))
        for field, function in functions.items():
            if own and field in fields:
                parts.fields[field] = function(context)
                continue
            try:
                with SUBJECTS.guarded(name):
                    parts.added[name] = msgspec.to_builtins(worded(function(context)))
            except PluginError as error:
                parts.failed.append(Observation("subject_failed", {"error": str(error)}))
    return parts
