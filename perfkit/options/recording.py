"""Options of recordings: each is declared once, with its type, default and description, and checked here.

Command-line options, keys of the TOML file, fields of the manifest, the parameters of `perfkit.profile`, the axes of
`perfkit sweep` and which runs have the same configuration derive from these records. `perfkit.options.run` and
`perfkit.options.script` add the options of workloads and of scripts, `perfkit.record.profile` those of a user's own
loop.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, structs
from msgspec.structs import force_setattr

from perfkit.base.formatting import install_extra
from perfkit.base.parsing import parse_duration, parse_size
from perfkit.errors import UsageError
from perfkit.options.conditions import DEFAULT_BYTES, DEFAULT_CAPTURES, CaptureRules
from perfkit.options.help_groups import CAPTURES, COMMON, HANGS, MONITOR, RANKS, RECORDING
from perfkit.options.schedule import DEFAULT_SCHEDULE, Schedule
from perfkit.options.trace_ranks import check_trace_ranks

SCHEDULE: Final = "Steps to record, as in torch.profiler.schedule"
TIMEOUT: Final = "Limit of every wait for another rank, for example 90s or 10m"
DEFAULT_MOST_BYTES: Final = 64 << 20
"""Size of a step log: about 340,000 records."""
LEAST_MOST_BYTES: Final = 64 << 10
"""A smaller log would be rolled up all the time."""

LOCATES: Final = Meta(extra={"role": "locates"})
"""Marks an option that names, locates or reports a run and does not affect what it does: not part of its identity."""

SUPERVISES: Final = Meta(extra={"role": "supervises"})
"""Marks an option that does not change how fast steps are: runs that differ in it are compared as equal."""

EXTENT: Final = Meta(extra={"role": "extent"})
"""Marks an option that does not change how long a warm step takes, or is compared by another property: a comparison
shows it, and configurations that differ in nothing else are one."""

DetailName = Literal["light", "time", "why"]
Detail = Annotated[
    DetailName,
    EXTENT,
    Meta(
        description="What to record: light, for the breakdown alone; time, for where the time goes; why, also for its "
        "causes: Python functions and modules, shapes, allocations (--with-stack, --record-shapes, --profile-memory); "
        "docs/detail.md lists the cost of each."
    ),
]
RECORDED_FOR: Final[Mapping[DetailName, tuple[str, ...]]] = {
    "light": (),
    "time": (),
    "why": ("with_stack", "record_shapes", "profile_memory"),
}
"""Options of the profiler that a level of detail switches on."""

TraceRanks = Annotated[
    str | None,
    EXTENT,
    Meta(
        description="Ranks that record fully, such as 0,7, or per-host or per-stage, one each; the others leave light "
        "traces: no operators, at most 2 MB per step (docs/detail.md) [default: all]."
    ),
]

Monitor = Annotated[
    bool,
    SUPERVISES,
    Meta(
        description="Also record every step of the whole run: its time and where it goes, memory, the device, in "
        "rank<R>.steps in the run's folder (docs/monitor.md)."
    ),
]


class RecordingOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of everything that records steps: a workload, a script, a user's own loop with or without traces."""

    hang_after: Annotated[
        str | None,
        HANGS,
        SUPERVISES,
        Meta(
            description="If no step ends for this long, for example 90s, every rank writes its stacks and "
            "collectives, and perfkit reports which ranks wait for which; the first step (of a script only watched "
            "with this option) may take ten times as long [default: 20 times the median step, at least 5m]."
        ),
    ] = None
    on_hang: Annotated[
        Literal["report", "end"],
        HANGS,
        SUPERVISES,
        Meta(
            description="What to do after --hang-after: report and continue (a step may only be slow), or end the run."
        ),
    ] = "report"
    capture_when: Annotated[
        tuple[str, ...],
        CAPTURES,
        SUPERVISES,
        Meta(
            description="Also record the next steps when this becomes true: 'step > 1.5x median', "
            "'loader wait > 30 %', 'rank late > 20 %' (with --monitor) or every=10000; repeatable. See docs/capture.md."
        ),
    ] = ()
    captures: Annotated[
        int, CAPTURES, SUPERVISES, Meta(ge=0, description="Most captures that --capture-when may make.")
    ] = DEFAULT_CAPTURES
    capture_bytes: Annotated[
        str, CAPTURES, SUPERVISES, Meta(description="Total size of captures beyond which --capture-when makes no more.")
    ] = DEFAULT_BYTES
    monitor_bytes: Annotated[
        str | None,
        MONITOR,
        SUPERVISES,
        Meta(
            description="With --monitor: size of each rank's file beyond which older steps are aggregated "
            f"[default: {DEFAULT_MOST_BYTES >> 20}MiB]."
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        MONITOR,
        SUPERVISES,
        Meta(
            description="With --monitor: serve the latest metrics of each host's ranks to Prometheus, on this port "
            "of its loopback interface (docs/monitor.md; extra metrics).",
        ),
    ] = None
    sampling: Annotated[
        bool,
        SUPERVISES,
        Meta(
            description="Sample what the main thread runs in recorded steps, for the function and line of what takes "
            "long (docs/sampling.md; below 1 % of the step)."
        ),
    ] = True
    otlp: Annotated[
        bool,
        MONITOR,
        SUPERVISES,
        Meta(
            description="With --monitor: each host sends the latest metrics of its ranks to OpenTelemetry's "
            "collector, by OTLP; the variables OTEL_* set its address and the interval (docs/monitor.md; extra otel).",
        ),
    ] = False

    def check_recording(self) -> None:
        """Refuse invalid values and combinations."""
        _ = self.hang_after_s, self.monitor_limit
        self.capture_rules.require_monitor(self.is_monitored)
        self._check_metrics_port()
        if self.otlp and not self.is_monitored:
            raise UsageError("--otlp has no effect without --monitor: add it")
        if self.otlp and not _has_otlp_exporter():
            raise UsageError(f"--otlp needs opentelemetry-exporter-otlp-proto-http: {install_extra('otel')}")

    @property
    def is_monitored(self) -> bool:
        """Whether every step is written into a step log."""
        return True

    @property
    def capture_rules(self) -> CaptureRules:
        """When the run records by itself."""
        return CaptureRules.parse(self.capture_when, self.captures, self.capture_bytes)

    @property
    def hang_after_s(self) -> float | None:
        """How long no step may end, in s; None: it depends on the usual step."""
        if self.hang_after is None:
            return None
        limit_ns = parse_duration(self.hang_after, "--hang-after")
        if limit_ns < 10**9:
            raise UsageError(f"--hang-after {self.hang_after}: must be at least 1s")
        return limit_ns / 1e9

    @property
    def monitor_limit(self) -> int | None:
        """Size in bytes beyond which a step log is rolled up; None without a monitor."""
        if self.monitor_bytes is None:
            return DEFAULT_MOST_BYTES if self.is_monitored else None
        if not self.is_monitored:
            raise UsageError(f"--monitor-bytes {self.monitor_bytes} has no effect without --monitor: add it")
        size = parse_size(self.monitor_bytes, "--monitor-bytes")
        if size < LEAST_MOST_BYTES:
            raise UsageError(f"--monitor-bytes {self.monitor_bytes}: must be at least {LEAST_MOST_BYTES >> 10}KiB")
        return size

    def _check_metrics_port(self) -> None:
        port = self.metrics_port
        if port is None:
            return
        if not 0 < port < 65536:
            raise UsageError(f"--metrics-port {port}: must be from 1 to 65535")
        if not self.is_monitored:
            raise UsageError(f"--metrics-port {port} has no effect without --monitor: add it")
        if find_spec("prometheus_client") is None:
            raise UsageError(f"--metrics-port {port} needs prometheus-client: {install_extra('metrics')}")


class CommandOptions(RecordingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that `perfkit run WORKLOAD` and `perfkit run SCRIPT` have in common."""

    timeout: Annotated[str, RANKS, SUPERVISES, Meta(description=f"{TIMEOUT}.")] = "10m"
    monitor: Annotated[Monitor, MONITOR, COMMON] = False
    profile: Annotated[bool, RECORDING, Meta(description="Record traces, instead of only timing the steps.")] = True
    schedule: Annotated[str, RECORDING, Meta(description=f"{SCHEDULE}.")] = DEFAULT_SCHEDULE
    detail: Annotated[Detail, RECORDING, COMMON] = "time"
    trace_ranks: Annotated[TraceRanks, RECORDING] = None
    record_shapes: Annotated[
        bool, RECORDING, Meta(description="Record operators' input shapes (costs half a step, and memory).")
    ] = False
    profile_memory: Annotated[bool, RECORDING, Meta(description="Record allocations, for memory over the step.")] = (
        False
    )
    with_stack: Annotated[bool, RECORDING, Meta(description="Record Python stacks.")] = False
    with_flops: Annotated[bool, RECORDING, Meta(description="Estimate operators' FLOPs.")] = False
    with_modules: Annotated[bool, RECORDING, Meta(description="Record the module hierarchy.")] = False
    pyinstrument: Annotated[
        bool,
        RECORDING,
        Meta(description="Also sample the Python code of every rank in the recorded steps, by pyinstrument."),
    ] = False
    trace_dir: Annotated[str, LOCATES, Meta(description="Folder in which the run's folder is created.")] = "traces"
    name: Annotated[
        str | None, COMMON, LOCATES, Meta(description="Name of the run [default: workload, source, ranks and time].")
    ] = None

    def check_command(self, with_profiler: Iterable[str] = ()) -> None:
        """Refuse invalid values and combinations, and switch on what the level of detail needs.

        Args:
            with_profiler: Further options, off by default, that need the profiler.

        Raises:
            UsageError: The message names the option.
        """
        if self.timeout_ns < 10**9:
            raise UsageError(f"--timeout {self.timeout}: must be at least 1s")
        self.check_recording()
        Schedule.parse(self.schedule)
        check_trace_ranks(self.trace_ranks, self.detail)
        if not self.profile:
            self._refuse_profiler_options(with_profiler)
        if self.pyinstrument:
            self._refuse_second_hook()
        for name in RECORDED_FOR[self.detail]:
            force_setattr(self, name, True)

    @property
    def is_monitored(self) -> bool:
        return self.monitor

    @property
    def plan(self) -> Schedule | None:
        """The schedule; None if nothing is recorded."""
        return Schedule.parse(self.schedule) if self.profile else None

    @property
    def timeout_ns(self) -> int:
        """Limit of every wait for another rank, in ns."""
        return parse_duration(self.timeout, "--timeout")

    @property
    def timeout_delta(self) -> timedelta:
        return timedelta(microseconds=self.timeout_ns / 1000)

    def _refuse_second_hook(self) -> None:
        given = ["--detail why"] if "with_stack" in RECORDED_FOR[self.detail] else []
        given += [f"--{name.replace('_', '-')}" for name in ("with_stack", "with_modules") if getattr(self, name)]
        if given:
            raise UsageError(
                f"{given[0]} and --pyinstrument both need Python's only profiling hook: remove one of them"
            )

    def _refuse_profiler_options(self, more: Iterable[str]) -> None:
        given: dict[str, Any] = structs.asdict(self)
        if given["detail"] != "time":
            raise UsageError(f"--detail {given['detail']} has no effect with --no-profile: remove one of them")
        for name in (
            "record_shapes",
            "profile_memory",
            "with_stack",
            "with_flops",
            "with_modules",
            "pyinstrument",
            "trace_ranks",
            *more,
        ):
            if given[name]:
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} has no effect with --no-profile: remove one of them")


def refuse_contradiction(given: Mapping[str, Any]) -> None:
    """Refuse options that switch off what `--detail` needs."""
    for name in RECORDED_FOR.get(given.get("detail", "time"), ()):
        if given.get(name) is False:
            flag = name.replace("_", "-")
            raise UsageError(f"--detail {given['detail']} records what --no-{flag} switches off: remove one of them")


def _has_otlp_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a package above it
        return False
