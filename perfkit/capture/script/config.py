"""Options of `perfkit run SCRIPT`: names, types, defaults, and which values are refused."""

from typing import Annotated

from msgspec import Meta, Struct, structs

from perfkit.capture.conditions import DEFAULT_BYTES, DEFAULT_CAPTURES, CaptureRules
from perfkit.capture.durations import parse_duration, parse_hang_after
from perfkit.capture.schedule import DEFAULT_SCHEDULE, Schedule
from perfkit.capture.script.steps.step_rule import StepRule
from perfkit.capture.shared_options import (
    SCHEDULE,
    TIMEOUT,
    CaptureBytes,
    Captures,
    CaptureWhen,
    Detail,
    HangAfter,
    MetricsPort,
    Monitor,
    MonitorBytes,
    OnHang,
    Otlp,
    Profile,
    ProfileMemory,
    RecordShapes,
    RunName,
    TraceDir,
    WithFlops,
    WithModules,
    WithStack,
    monitor_limit,
    refuse_profiler_options,
    require_metrics,
    require_otlp,
    switch_on,
)
from perfkit.errors import UsageError
from perfkit.schema.common import UNNAMED


class ScriptConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `perfkit run SCRIPT`; validated on construction."""

    profile: Profile = True
    schedule: Annotated[str, Meta(description=f"{SCHEDULE}, counted from the end of the script's first step.")] = (
        DEFAULT_SCHEDULE
    )
    step_on: Annotated[
        str | None,
        Meta(
            description="What ends a step: an optimizer (its class, or the script's variable), backward, forward, "
            "forward:MODULE (its class), or perfkit.step, a call in the script [default: the first optimizer to step]."
        ),
    ] = None
    detail: Detail = "time"
    record_shapes: RecordShapes = False
    profile_memory: ProfileMemory = False
    with_stack: WithStack = False
    with_flops: WithFlops = False
    with_modules: WithModules = False
    report: Annotated[bool, Meta(description="Print the summary of perfkit analyze at the end, on stderr.")] = True
    trace_dir: TraceDir = "traces"
    name: RunName = None
    workload: Annotated[str, Meta(description="Name of the workload in reports [default: the script's name].")] = ""
    source: Annotated[str, Meta(description="Name of the input source in reports.")] = UNNAMED
    timeout: Annotated[
        str,
        Meta(description=f"{TIMEOUT}: at start-up, and while one writes a trace."),
    ] = "60s"
    hang_after: HangAfter = None
    on_hang: OnHang = "report"
    capture_when: CaptureWhen = ()
    captures: Captures = DEFAULT_CAPTURES
    capture_bytes: CaptureBytes = DEFAULT_BYTES
    monitor: Monitor = False
    monitor_bytes: MonitorBytes = None
    metrics_port: MetricsPort = None
    otlp: Otlp = False

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
        _ = self.hang_after_s, self.capture_rules, self.monitor_limit
        self.capture_rules.require_monitor(self.monitor)
        require_metrics(self.metrics_port, self.monitor)
        require_otlp(self.otlp, self.monitor)
        self._refuse_unknown_waits()
        _ = Schedule.parse(self.schedule), self.step_rule
        if not self.profile:
            refuse_profiler_options(self)
        switch_on(self, self.detail)

    def _refuse_unknown_waits(self) -> None:
        for condition in self.capture_rules.conditions:
            if condition.kind == "loader" and not self.monitor:
                raise UsageError(
                    f"--capture-when '{condition.text}' needs --monitor, which times how long a script waits for data"
                )

    @property
    def plan(self) -> Schedule | None:
        """Which steps are recorded, counted from the script's first step, step 0; None: no step is."""
        if not self.profile:
            return None
        plan = Schedule.parse(self.schedule)
        return structs.replace(plan, skip_first=plan.skip_first + 1)

    @property
    def step_rule(self) -> StepRule:
        """What ends a step."""
        return StepRule.parse(self.step_on)

    @property
    def capture_rules(self) -> CaptureRules:
        """When the run records by itself."""
        return CaptureRules.parse(self.capture_when, self.captures, self.capture_bytes)

    @property
    def hang_after_s(self) -> float | None:
        """How long no step may end, in s; None: it depends on the usual step."""
        return parse_hang_after(self.hang_after)

    @property
    def monitor_limit(self) -> int | None:
        """Size in bytes beyond which a step log is rolled up; None without a monitor."""
        return monitor_limit(self.monitor, self.monitor_bytes)

    @property
    def timeout_ns(self) -> int:
        """How long ranks wait for each other."""
        return parse_duration(self.timeout, "--timeout")
