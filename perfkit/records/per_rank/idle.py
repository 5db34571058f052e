"""Why a device idles, and how far the host launches ahead of it (metrics.md section 19)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Struct

from perfkit.records.samples import CodeLocation

NO_LAUNCH: Final = "launch not recorded"
NOTHING_RECORDED: Final = "nothing recorded on the host"
SILENT_THREAD: Final = "nothing recorded on the thread that launches"
"""Such as autograd's thread in the middle of a backward pass."""
QUEUED_FOR_ANOTHER: Final = "queued while another stream worked"
QUEUED_FOR_NOTHING: Final = "queued for a reason not in the trace"
IN_GRAPH: Final = "between the kernels of a graph"
"""Details that are no name of the trace; `perfkit.engine.idle.pieces` has all of them."""


class IdleNs(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Idle time of a step by cause; sums exactly to the step's `exposed_ns.overhead`. JSON leaves out zeros."""

    # A field is a cause: its name, and what it is called in sentences and tables.
    synchronisation: Annotated[int, "waiting for the device"] = 0
    """The host waited for the device, or for a copy."""
    launch_bound: Annotated[int, "launch-bound"] = 0
    """The host was issuing work, and the device had none left."""
    host_work: Annotated[int, "host work"] = 0
    """The host did something else than issuing: Python, libraries, operators on the CPU."""
    allocation: Annotated[int, "allocating device memory"] = 0
    """The host allocated or released memory of the device."""
    compilation: Annotated[int, "compiling or loading code"] = 0
    """The host compiled or loaded code."""
    dependency: Annotated[int, "queued on the device"] = 0
    """The next kernel had been launched, and waited for something on the device."""
    not_running: Annotated[int, "host waiting"] = 0
    """The host's thread slept, or waited for a lock, another thread or the network."""
    profiler: Annotated[int, "profiler"] = 0
    """The profiler worked."""
    other_device: Annotated[int, "another device works"] = 0
    """Another device of the process worked: the mean over its devices."""
    unknown: Annotated[int, "unknown"] = 0
    """The trace does not show what the host did."""


if TYPE_CHECKING:
    Cause = str
else:
    Cause = Literal[IdleNs.__struct_fields__]
CAUSES: Final[tuple[Cause, ...]] = IdleNs.__struct_fields__
CAUSE_WORDS: Final[Mapping[Cause, str]] = {
    name: annotation.__metadata__[0] for name, annotation in IdleNs.__annotations__.items()
}
"""What the causes are called in sentences and tables."""


class IdleCause(Struct, frozen=True, kw_only=True, gc=False):
    """Idle time of one cause and detail, summed over a rank's steps."""

    cause: Cause
    detail: str
    """Operator, runtime call, Python function or annotation that ran; or a sentence where none did."""
    context: str | None
    """Python function, annotation or operator that `detail` ran in; None if unknown."""
    count: int
    """How often the device (without one: the operators) paused for it."""
    total_ns: int
    max_ns: int
    """Longest single pause."""
    code: CodeLocation | None = None
    """Where most of it was in the program; None if the main thread was not sampled, or did something else."""


class PossibleLoading(Struct, frozen=True, kw_only=True, gc=False):
    """An annotation or function that prepares each step, as the loading of its batch does."""

    name: str
    """As in the trace, such as `train.py(116): get_batch`."""
    total_ns: int
    """Idle time within it, over a rank's steps."""


class IdleTime(Struct, frozen=True, kw_only=True):
    """Why a rank was idle, summed over its steps."""

    causes: list[IdleCause]
    """By time, largest first; at most 100 rows, and one per cause for all others."""
    kernels: int
    """Kernels launched in the steps; 0 without a device."""
    short_kernels: int
    """Those of them that ran for less than 5 us, about what launching one takes."""
    has_python_frames: bool
    """Whether Python functions were recorded (`with_stack`), or sampled."""
    possible_loading: PossibleLoading | None = None
    """The one with most idle time; None without any, or if loading was recorded as such."""


class LaunchStats(Struct, frozen=True, kw_only=True, gc=False):
    """Kernels and copies with a recorded launch, summed over a rank's steps."""

    count: int
    call_ns: int
    """Time of the calls that launched them."""
    call_median_ns: int = 0
    """Median of these: where the queue of the device is full, a call waits. Of several traces the largest."""
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
    largest = ("call_median_ns", "max_delay_ns", "max_ahead")
    names = LaunchStats.__struct_fields__
    return LaunchStats(**{n: (max if n in largest else sum)(getattr(one, n) for one in known) for n in names})
