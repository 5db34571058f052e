"""Conditions of `--capture-when`: `step > 1.5x median`, `loader wait > 30 %`, `rank late > 20 %`, `every=10000`."""

import re
from collections.abc import Sequence
from typing import Final, Literal, Self

from msgspec import Struct

from perfkit.base.parsing import parse_size
from perfkit.errors import UsageError

ConditionKind = Literal["step", "loader", "late", "every"]

_NUMBER: Final = r"(\d{1,9}(?:\.\d{1,6})?)"
_FORMS: Final[dict[ConditionKind, re.Pattern[str]]] = {
    "step": re.compile(rf"step\s*>\s*{_NUMBER}\s*x\s*median"),
    "loader": re.compile(rf"loader\s+wait\s*>\s*{_NUMBER}\s*%"),
    "late": re.compile(rf"rank\s+late\s*>\s*{_NUMBER}\s*%"),
    "every": re.compile(r"every\s*=\s*(\d{1,12})"),
}
_SHARES: Final = ("loader", "late")
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
    """`step`: a multiple of the median step; `loader`, `late`: a share of the step, from 0 to 1; `every`: a number of
    steps."""


class CaptureRules(Struct, frozen=True):
    """When a run records by itself, and how often."""

    conditions: tuple[Condition, ...] = ()
    captures: int = DEFAULT_CAPTURES
    most_bytes: int = 0

    @classmethod
    def parse(cls, conditions: Sequence[str], captures: int, most_bytes: str) -> Self:
        """Return the rules that options describe."""
        if captures < 0:
            raise UsageError(f"--captures {captures}: must be at least 0")
        found = cls(parse_conditions(conditions), captures, parse_size(most_bytes, "--capture-bytes"))
        for option, value, default in (
            ("--captures", captures, DEFAULT_CAPTURES),
            ("--capture-bytes", most_bytes, DEFAULT_BYTES),
        ):
            if not conditions and value != default:
                raise UsageError(f"{option} {value} has no effect without --capture-when: set it too")
        return found

    @property
    def late(self) -> Condition | None:
        """The condition about late ranks; None without one."""
        return next((condition for condition in self.conditions if condition.kind == "late"), None)

    def require_monitor(self, monitor: bool) -> None:
        """Refuse a condition that only the monitor's logs can show."""
        if self.late is not None and not monitor:
            raise UsageError(
                f"--capture-when '{self.late.text}' needs --monitor (monitor=True): its logs have what each rank waits "
                "for the others"
            )

    def refuse_unseen_waits(self, world_size: int, device: str) -> None:
        """Refuse a condition about late ranks where none can be seen.

        Raises:
            UsageError: There is a single rank, or its device waits for collectives, which the host does not see.
        """
        if self.late is None:
            return
        option = f"--capture-when '{self.late.text}'"
        if world_size < 2:
            raise UsageError(f"{option}: a single rank is waited for by no other")
        if device != "cpu":
            raise UsageError(
                f"{option}: on {device} the device waits for collectives and not the host, so that nobody knows in "
                "the run who is late; ranks that wait see 'step > 1.5x median'"
            )


def parse_condition(text: str) -> Condition:
    """Parse one condition.

    Raises:
        UsageError: It is not one, or its number is out of range.
    """
    plain = text.strip()
    for kind, form in _FORMS.items():
        if match := form.fullmatch(plain):
            return _checked(Condition(plain, kind, float(match[1]) / (100 if kind in _SHARES else 1)))
    raise UsageError(
        f"--capture-when '{text}': write 'step > 1.5x median', 'loader wait > 30 %', 'rank late > 20 %' or every=10000"
    )


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
    if condition.kind in _SHARES and not 0 < condition.limit < 1:
        raise UsageError(f"{option}: must be more than 0 % and less than 100 %")
    if condition.kind == "every" and condition.limit < SHORTEST_PERIOD:
        raise UsageError(f"{option}: must be at least every={SHORTEST_PERIOD}")
    return condition
