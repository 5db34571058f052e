"""Single collectives on the ranks that took part in them, for the timelines of a page."""

from msgspec import Struct


class CollectiveOnRank(Struct, frozen=True, kw_only=True, gc=False):
    """One rank's part in a collective."""

    rank: int
    start_ns: int
    """Absolute, by the clock of the rank's host."""
    begin_ns: int | None
    """The same instant by the reference clock; None if no collective links the two."""
    duration_ns: int
    wait_ns: int | None
    """How long it waited for another rank in it (metrics.md section 5); None if that is not known."""


class LinkedCollective(Struct, frozen=True, kw_only=True):
    """A collective that several ranks were matched in, in a step whose timeline a page draws."""

    step: int | None
    operator: str
    group_size: int | None
    ranks: int
    """Number of ranks that it was found on."""
    last: int | None
    """The rank that the others waited for; None if nobody did, or if the collective does not tell."""
    on_ranks: list[CollectiveOnRank]
    """By rank; at most 8: those whose timelines are drawn, `last`, and those that waited longest."""
