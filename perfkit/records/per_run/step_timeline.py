"""What ran when in one step of one rank, for the timelines of a page."""

from typing import Final, Literal

from msgspec import Struct

TimelineLane = Literal["category", "idle", "annotation", "operator", "compute", "communication", "copy"]

NAME_LENGTH: Final = 200
"""Names of slices are cut to this."""


class TimelineRow(Struct, frozen=True, kw_only=True):
    """Disjoint slices in order of time; columns of one length."""

    lane: TimelineLane
    title: str
    """Thread, stream, or dimension of parallelism; rows of nested slices have the same, the outermost first."""
    start_ns: list[int]
    """Since the start of the step's window."""
    duration_ns: list[int]
    name: list[int]
    """Index into `StepTimeline.names`."""
    link: list[int] = []
    """Of a row of communication: index into `RunReport.linked_collectives`, or -1; empty for others."""


class StepTimeline(Struct, frozen=True, kw_only=True):
    """One step of one rank."""

    rank: int | None
    step: int | None
    trace: str
    """File name, relative to the run."""
    begin_ns: int | None = None
    """Absolute start of the step's window by the reference clock; None if no collective links it to the rank's."""
    window_ns: int
    """Length of the step's window, pauses included."""
    names: list[str]
    rows: list[TimelineRow]
    cell_ns: int | None
    """Each of these shows what took most of it, in the row of categories; None if its slices are exact."""
    left_out: int
    """Number of slices that are not here because longer ones filled the timeline."""
