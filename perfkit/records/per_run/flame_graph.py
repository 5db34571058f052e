"""Where the time of a rank's mean step goes by call stack, for the flame graphs of a page."""

from typing import Literal

from msgspec import Struct

from perfkit.records.per_run.step_timeline import TimelineLane

FlameWeight = Literal["samples", "device", "host"]
FlameView = Literal["python", "module"]


class FlameGraph(Struct, frozen=True, kw_only=True):
    """Frames in the order in which they are drawn: each is followed by those that it calls, the longest first.

    The columns `depth`, `name` and `duration_ns` have one length.
    """

    rank: int | None
    trace: str
    """File name, relative to the run."""
    weight: FlameWeight
    """Time of the main thread by its samples; of kernels and copies; without a device, self time of operators."""
    by: FlameView
    total_ns: int
    """Of all stacks, per recorded step."""
    names: list[str]
    lanes: list[TimelineLane]
    """What each name is: `annotation` for functions and modules."""
    depth: list[int]
    """0 for the outermost."""
    name: list[int]
    """Index into `names`."""
    duration_ns: list[int]
    """Per recorded step."""
    left_out: int
    """Number of shorter frames that are not here."""
