"""Models of the work of torch's operators: a table of rows, `MODELS`, and one file per family."""

from collections.abc import Callable
from typing import NamedTuple

from perfkit.records.per_rank.operator_work import WorkKind
from perfkit.subjects.roofline.operator_work.arguments import Arguments


class Work(NamedTuple):
    """What one call of an operator needs at least."""

    flops: int
    """Arithmetic operations; a multiplication and an addition are two."""
    bytes: int
    """Memory traffic if every input is read once and every output written once."""
    dtype: str | None
    """Type of the elements; of a matrix product that of its factors. None if it was not recorded."""


class Model(NamedTuple):
    """How the work of an operator follows from its arguments."""

    kind: WorkKind
    work: Callable[[Arguments], Work]
    """Raises UnknownArgumentsError if the arguments do not tell."""
    is_composite: bool = False
    """Whether the operator usually calls others that have a model; it counts only if it calls none."""
