"""Options of `perfkit run SCRIPT`: names, types, defaults, and which values are refused."""

from typing import Annotated

from msgspec import Meta, Struct

from perfkit.capture.config import parse_duration
from perfkit.capture.schedule import DEFAULT_SCHEDULE, Schedule
from perfkit.errors import UsageError


class ScriptConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `perfkit run SCRIPT`; validated on construction."""

    schedule: Annotated[
        str, Meta(description="Which steps are recorded, counted from the end of the optimizer's first step.")
    ] = DEFAULT_SCHEDULE
    step_on: Annotated[
        str | None,
        Meta(description="Class of the optimizer whose steps count [default: the first optimizer that steps]."),
    ] = None
    record_shapes: Annotated[
        bool, Meta(description="Record operators' shapes (adds about half a step's time, and memory).")
    ] = False
    profile_memory: Annotated[bool, Meta(description="Record allocations, for memory over the step.")] = False
    with_stack: Annotated[bool, Meta(description="Record Python stacks.")] = False
    with_flops: Annotated[bool, Meta(description="Estimate operators' FLOPs.")] = False
    with_modules: Annotated[bool, Meta(description="Record module hierarchy.")] = False
    trace_dir: Annotated[str, Meta(description="Folder that receives the run's folder.")] = "traces"
    name: Annotated[
        str | None,
        Meta(description="Name of the run [default: workload, source, ranks and time]."),
    ] = None
    workload: Annotated[str, Meta(description="Name of the workload in reports [default: the script's name].")] = ""
    source: Annotated[str, Meta(description="Name of the input source in reports.")] = "custom"
    timeout: Annotated[
        str,
        Meta(description="How long ranks wait for each other, as 90s: at start-up, and while one writes a trace."),
    ] = "60s"

    def __post_init__(self) -> None:
        """Refuse invalid values.

        Raises:
            UsageError: An option has an invalid value.
        """
        for option in ("name", "workload", "source"):
            text = getattr(self, option) or ""
            if "/" in text or text.startswith("."):
                raise UsageError(f"--{option} {text}: must be a folder name, without '/' or a leading dot")
        if self.timeout_ns < 10**9:
            raise UsageError(f"--timeout {self.timeout}: must be at least 1s")

        _ = self.plan

    @property
    def plan(self) -> Schedule:
        """The schedule."""
        return Schedule.parse(self.schedule)

    @property
    def timeout_ns(self) -> int:
        """How long ranks wait for each other."""
        return parse_duration(self.timeout, "--timeout")
