"""What an effect works with, and what it returns."""

from typing import NamedTuple

from perfkit.schema.run import RunReport
from perfkit.whatif.altered import Altered


class Effect(NamedTuple):
    """A graph after a change."""

    state: Altered
    applies_to: str
    """What of the run the change applies to."""
    assumptions: list[str]


class Subject(NamedTuple):
    """A graph that a change is applied to, and what else is known of its run."""

    state: Altered
    run: RunReport
    text: str
    """The change as given, for messages."""
    healthy: frozenset[int] = frozenset()
    """Ranks that the changes together make healthy: they are no measure for each other."""
