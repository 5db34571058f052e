"""Numbers as people list them: `0,7` or `12-14`."""

import re

from perfkit.errors import UsageError

_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


class Ranges:
    """A set of numbers, kept as ranges: `0-999999999` costs nothing.

    Raises:
        UsageError: the text is no such list.
    """

    def __init__(self, option: str, text: str) -> None:
        self._option = option
        self._ranges = [self._parsed(part.strip()) for part in text.split(",")]

    def _parsed(self, part: str) -> tuple[int, int]:
        found = _RANGE.fullmatch(part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise UsageError(f"{self._option} {part or '(nothing)'}: give numbers and ranges such as 0,7 or 12-14")
        return int(found[1]), int(found[2] or found[1])

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self._ranges)

    def check(self, there: set[int], what: str) -> None:
        """Raise UsageError where a bound of a range is not there."""
        for number in (number for bounds in self._ranges for number in bounds):
            if number not in there:
                has = _listed(sorted(there)) if there else "none that says its number"
                raise UsageError(f"{self._option} {number}: there is no such {what}; it has {has}")


def _listed(numbers: list[int]) -> str:
    if len(numbers) == numbers[-1] - numbers[0] + 1 and len(numbers) > 2:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
