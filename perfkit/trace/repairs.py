"""What is done with events that are invalid, and how it is told."""

from typing import Final, NamedTuple


class Repair(NamedTuple):
    """What was done with invalid events of one kind."""

    noun: str
    what: str
    skips_events: bool = False
    """Whether the events are missing in the analysis."""

    def sentence(self, count: int) -> str:
        """Return what was done with so many of them."""
        return f"{count:,} {self.noun}{'' if count == 1 else 's'} {self.what}"


NO_START: Final = Repair("event", "without a usable start, skipped", skips_events=True)
NO_DURATION: Final = Repair("event", "without a usable duration, set to 0")
NEGATIVE_DURATION: Final = Repair("event", "of negative duration, set to 0")
TOO_LONG: Final = Repair("event", "longer than 13 days, set to 0")
BAD_CORRELATION: Final = Repair("event", "with a correlation that is not a number, ignored")
