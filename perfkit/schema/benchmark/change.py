"""A measurement of a benchmark before and after."""

from msgspec import Struct


class BenchmarkChange(Struct, frozen=True, kw_only=True):
    """A measurement before and after."""

    series: str
    """The series in words."""
    before_ns: float
    after_ns: float
    ratio: float
    """Time after / before."""
    interval: tuple[float, float] | None
    """95 % bootstrap interval of the ratio over the repeats; None with fewer than three on a side."""
    significant: bool | None
    """Whether the interval excludes 1 and the change is larger than the assumed noise; None without an interval."""
