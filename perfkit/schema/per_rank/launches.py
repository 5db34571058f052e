"""How far the host launches ahead of the device (metrics.md section 19)."""

from collections.abc import Iterable

from msgspec import Struct


class LaunchStats(Struct, frozen=True, kw_only=True, gc=False):
    """Kernels and copies with a recorded launch, summed over a rank's steps."""

    count: int
    call_ns: int
    """Time of the calls that launched them."""
    kernel_ns: int
    """Their own time."""
    shorter: int
    """Those that were shorter than the call."""
    shorter_ns: int
    """The time of these."""
    delay_ns: int
    """Time from the end of the call to their begin; 0 for those that began before it."""
    max_delay_ns: int
    ahead: int
    """Sum, over launches, of the activities that were launched before and had not ended."""
    max_ahead: int
    on_idle_device: int
    """Launches at which the device had nothing left to do."""


def add_launches(stats: Iterable[LaunchStats | None]) -> LaunchStats | None:
    """Return the launches of several traces or ranks; None without any."""
    known = [one for one in stats if one is not None]
    if not known:
        return None
    largest = ("max_delay_ns", "max_ahead")
    names = LaunchStats.__struct_fields__
    return LaunchStats(**{n: (max if n in largest else sum)(getattr(one, n) for one in known) for n in names})
