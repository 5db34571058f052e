"""Options that `perfkit run WORKLOAD` and `perfkit run SCRIPT` have in common: their types and descriptions."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, structs
from msgspec.structs import force_setattr

from perfkit.errors import UsageError
from perfkit.schema.monitor import DEFAULT_MOST_BYTES, LEAST_MOST_BYTES
from perfkit.util.formatting import install_extra
from perfkit.util.parsing import parse_size

SCHEDULE: Final = "Steps to record, as in torch.profiler.schedule"
HANG_AFTER_DEFAULT: Final = "20 times the median step, at least 5m"
TIMEOUT: Final = "Limit of every wait for another rank, for example 90s or 10m"

RecordShapes = Annotated[bool, Meta(description="Record operators' input shapes (costs half a step, and memory).")]
ProfileMemory = Annotated[bool, Meta(description="Record allocations, for memory over the step.")]
WithStack = Annotated[bool, Meta(description="Record Python stacks.")]
WithFlops = Annotated[bool, Meta(description="Estimate operators' FLOPs.")]
WithModules = Annotated[bool, Meta(description="Record the module hierarchy.")]
TraceDir = Annotated[str, Meta(description="Folder in which the run's folder is created.")]
HangAfter = Annotated[
    str | None,
    Meta(
        description="If no step ends for this long, for example 90s, every rank writes its stacks and collectives, and "
        "perfkit reports which ranks wait for which; the first step (of a script only watched with this option) may "
        "take ten times as long "
        f"[default: {HANG_AFTER_DEFAULT}]."
    ),
]
OnHang = Annotated[
    Literal["report", "end"],
    Meta(description="What to do after --hang-after: report and continue (a step may only be slow), or end the run."),
]
CaptureWhen = Annotated[
    tuple[str, ...],
    Meta(
        description="Also record the next steps when this becomes true: 'step > 1.5x median', "
        "'loader wait > 30 %', 'rank late > 20 %' (with --monitor) or every=10000; repeatable. See docs/capture.md."
    ),
]
Captures = Annotated[int, Meta(ge=0, description="Most captures that --capture-when may make.")]
CaptureBytes = Annotated[str, Meta(description="Total size of captures beyond which --capture-when makes no more.")]
RunName = Annotated[str | None, Meta(description="Name of the run [default: workload, source, ranks and time].")]

Monitor = Annotated[
    bool,
    Meta(
        description="Also write a record of every step of the whole run, into rank<R>.steps in the run's folder: its "
        "time and where it goes, memory, the device (docs/monitor.md)."
    ),
]
MonitorBytes = Annotated[
    str | None,
    Meta(
        description="With --monitor: size of each rank's file beyond which older steps are aggregated "
        f"[default: {DEFAULT_MOST_BYTES >> 20}MiB]."
    ),
]

MetricsPort = Annotated[
    int | None,
    Meta(
        description="With --monitor: serve the latest metrics of each host's ranks to Prometheus, on this port of its "
        "loopback interface (docs/monitor.md; extra metrics).",
    ),
]

Otlp = Annotated[
    bool,
    Meta(
        description="With --monitor: each host sends the latest metrics of its ranks to OpenTelemetry's collector, by "
        "OTLP; the variables OTEL_* set its address and the interval (docs/monitor.md; extra otel).",
    ),
]

Profile = Annotated[bool, Meta(description="Record traces, instead of only timing the steps.")]

DetailName = Literal["time", "why"]
Detail = Annotated[
    DetailName,
    Meta(
        description="What to record: time, for where the time goes; why, also for its causes: Python functions and "
        "modules, shapes, allocations (--with-stack, --record-shapes, --profile-memory); docs/detail.md lists the cost "
        "of each."
    ),
]
RECORDED_FOR: Final[Mapping[DetailName, tuple[str, ...]]] = {
    "time": (),
    "why": ("with_stack", "record_shapes", "profile_memory"),
}
"""Options of the profiler that a level of detail switches on."""


def switch_on(config: Struct, detail: DetailName) -> None:
    """Switch on the options that belong to a level of detail, in a frozen record that is being made."""
    for name in RECORDED_FOR[detail]:
        force_setattr(config, name, True)


def refuse_profiler_options(config: Struct, more: Iterable[str] = ()) -> None:
    """Refuse, for a run without the profiler, options about what it records.

    Args:
        config: Has the options `detail` and those of `ProfilerOptions`.
        more: Further options, off by default, that need the profiler.

    Raises:
        UsageError: The message names the option.
    """
    given: dict[str, Any] = structs.asdict(config)
    if given["detail"] != "time":
        raise UsageError(f"--detail {given['detail']} has no effect with --no-profile: remove one of them")
    for name in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", *more):
        if given[name]:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} has no effect with --no-profile: remove one of them")


def refuse_contradiction(given: Mapping[str, Any]) -> None:
    """Refuse options that switch off what `--detail` needs.

    Args:
        given: Values of the options that were given.

    Raises:
        UsageError: The message names both.
    """
    for name in RECORDED_FOR.get(given.get("detail", "time"), ()):
        if given.get(name) is False:
            flag = name.replace("_", "-")
            raise UsageError(f"--detail {given['detail']} records what --no-{flag} switches off: remove one of them")


def require_metrics(port: int | None, monitor: bool) -> None:
    """Refuse a port for Prometheus that nothing could answer on.

    Raises:
        UsageError: There is no monitor, the package is missing, or the port is none.
    """
    if port is None:
        return
    if not 0 < port < 65536:
        raise UsageError(f"--metrics-port {port}: must be from 1 to 65535")
    if not monitor:
        raise UsageError(f"--metrics-port {port} has no effect without --monitor: add it")
    if find_spec("prometheus_client") is None:
        raise UsageError(f"--metrics-port {port} needs prometheus-client: {install_extra('metrics')}")


def require_otlp(otlp: bool, monitor: bool) -> None:
    """Refuse to send figures by OTLP where there are none, or nothing to send them with.

    Raises:
        UsageError: There is no monitor, or the package is missing.
    """
    if not otlp:
        return
    if not monitor:
        raise UsageError("--otlp has no effect without --monitor: add it")
    if not _has_otlp_exporter():
        raise UsageError(f"--otlp needs opentelemetry-exporter-otlp-proto-http: {install_extra('otel')}")


def _has_otlp_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def monitor_limit(monitor: bool, monitor_bytes: str | None) -> int | None:
    """Return the size beyond which a step log is rolled up; None without a monitor.

    Raises:
        UsageError: The size is invalid, or there is no monitor.
    """
    if monitor_bytes is None:
        return DEFAULT_MOST_BYTES if monitor else None
    if not monitor:
        raise UsageError(f"--monitor-bytes {monitor_bytes} has no effect without --monitor: add it")
    size = parse_size(monitor_bytes, "--monitor-bytes")
    if size < LEAST_MOST_BYTES:
        raise UsageError(f"--monitor-bytes {monitor_bytes}: must be at least {LEAST_MOST_BYTES >> 10}KiB")
    return size
