"""Conditions of `--capture-when`: `step > 1.5x median`, `loader wait > 30 %`, `every=10000`."""

import re
from collections.abc import Sequence
from typing import Final, Literal, Self

from msgspec import Struct

from perfkit.errors import UsageError
from perfkit.util.byte_sizes import parse_size

ConditionKind = Literal["step", "loader", "every"]

_NUMBER: Final = r"(\d{1,9}(?:\.\d{1,6})?)"
_FORMS: Final[dict[ConditionKind, re.Pattern[str]]] = {
    "step": re.compile(rf"step\s*>\s*{_NUMBER}\s*x\s*median"),
    "loader": re.compile(rf"loader\s+wait\s*>\s*{_NUMBER}\s*%"),
    "every": re.compile(r"every\s*=\s*(\d{1,12})"),
}
_RANK_LATE: Final = re.compile(r"rank\s+late\b.*")
SHORTEST_PERIOD: Final = 100
"""Steps between two requests of conditions, at least."""


DEFAULT_CAPTURES: Final = 5
DEFAULT_BYTES: Final = "2GiB"


class Condition(Struct, frozen=True):
    """When a run records by itself."""

    text: str
    """As the user wrote it."""
    kind: ConditionKind
    limit: float
    """`step`: a multiple of the median step; `loader`: a share of the step, from 0 to 1; `every`: a number of steps."""


class CaptureRules(Struct, frozen=True):
    """When a run records by itself, and how often."""

    conditions: tuple[Condition, ...] = ()
    captures: int = DEFAULT_CAPTURES
    most_bytes: int = 0

    @classmethod
    def parse(cls, conditions: Sequence[str], captures: int, most_bytes: str) -> Self:
        """Return the rules that options describe.

        Raises:
            UsageError: A value is invalid.
        """
        if captures < 0:
            raise UsageError(f"--captures {captures}: must be at least 0")
        return cls(parse_conditions(conditions), captures, parse_size(most_bytes, "--capture-bytes"))


def parse_condition(text: str) -> Condition:
    """Parse one condition.

    Raises:
        UsageError: It is not one, or its number is out of range.
    """
    plain = text.strip()
    for kind, form in _FORMS.items():
        if match := form.fullmatch(plain):
            return _checked(Condition(plain, kind, float(match[1]) / (100 if kind == "loader" else 1)))
    if _RANK_LATE.fullmatch(plain):
        raise UsageError(
            f"--capture-when '{text}': a rank does not know while it runs who is late; the ranks that wait for it see "
            "'step > 1.5x median'"
        )
    raise UsageError(f"--capture-when '{text}': write 'step > 1.5x median', 'loader wait > 30 %' or every=10000")


def parse_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Parse all conditions.

    Raises:
        UsageError: One is invalid or given twice.
    """
    conditions = tuple(parse_condition(text) for text in texts)
    kinds = [condition.kind for condition in conditions]
    for condition in conditions:
        if kinds.count(condition.kind) > 1:
            raise UsageError(f"--capture-when '{condition.text}': give one condition of this form")
    return conditions


def _checked(condition: Condition) -> Condition:
    option = f"--capture-when '{condition.text}'"
    if condition.kind == "step" and condition.limit <= 1:
        raise UsageError(f"{option}: half of all steps are longer than the median: the factor must be larger than 1")
    if condition.kind == "loader" and not 0 < condition.limit < 1:
        raise UsageError(f"{option}: must be more than 0 % and less than 100 %")
    if condition.kind == "every" and condition.limit < SHORTEST_PERIOD:
        raise UsageError(f"{option}: must be at least every={SHORTEST_PERIOD}")
    return condition
