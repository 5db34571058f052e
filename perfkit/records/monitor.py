"""What the monitor writes of every step: a rank's step log, `rank<R>.steps`, and the steps before a capture.

A log is a header, JSON filled up with blanks to `HEADER_BYTES`, and one record per step, or per several steps that were
rolled up. A record that stands for several steps has the mean of a column over those of them whose value is known,
unless the column's `rolled_up` says otherwise. All times are those of the host, unless stated otherwise. A change to
the header or the columns bumps `STEP_LOG_VERSION`.
"""

import math
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct

from perfkit.records.manifest import StepKind

Dtype = Literal["<u4", "<i2", "<u2", "<i4", "<i8", "<f4", "<f8"]
"""Little-endian numbers, as numpy names them."""

Unit = Literal["", "ns", "bytes", "share", "°C", "MHz", "W"]

RollUp = Literal["mean", "max", "first", "sum", "newest", "any", "same", "longest"]
"""How the values of several records become one: `same`, if all are, else unknown; `any`, the bits of all; `longest`,
that of the record with the longest step."""


class StepColumn(Struct, frozen=True, kw_only=True):
    """One column of the step log."""

    name: str
    dtype: Dtype
    unit: Unit
    meaning: str
    unknown: Literal["never", "-1", "NaN"]
    """What stands where the value is unknown; `never`: it always is known."""
    rolled_up: RollUp = "mean"


def _ns(name: str, meaning: str, rolled_up: RollUp = "mean") -> StepColumn:
    return StepColumn(name=name, dtype="<i8", unit="ns", meaning=meaning, unknown="-1", rolled_up=rolled_up)


def _bytes(name: str, meaning: str, rolled_up: RollUp) -> StepColumn:
    return StepColumn(name=name, dtype="<i8", unit="bytes", meaning=meaning, unknown="-1", rolled_up=rolled_up)


def _number(name: str, unit: Unit, meaning: str, rolled_up: RollUp = "mean") -> StepColumn:
    return StepColumn(name=name, dtype="<f4", unit=unit, meaning=meaning, unknown="NaN", rolled_up=rolled_up)


def _count(name: str, dtype: Dtype, meaning: str, rolled_up: RollUp) -> StepColumn:
    return StepColumn(name=name, dtype=dtype, unit="", meaning=meaning, unknown="never", rolled_up=rolled_up)


CHECK: Final = "check"

COLUMNS: Final = (
    _count(CHECK, "<u4", "CRC-32 of the bytes of the record that follow", "newest"),
    _count("steps", "<u4", "steps that the record stands for: 1, or more after a roll-up", "sum"),
    StepColumn(
        name="kind",
        dtype="<i2",
        unit="",
        meaning="what the step was: 0 cold (the first, or soon after a trace was written), 1 plain, 2 warming up the "
        "profiler, 3 recorded by it; -1 steps of several kinds",
        unknown="-1",
        rolled_up="same",
    ),
    _count("flags", "<u2", "bits: 1 a loss was given; 2 the device is throttled", "any"),
    StepColumn(
        name="sample_age_ms",
        dtype="<i4",
        unit="",
        meaning="milliseconds between the end of the step and the sample that the columns from allocated_bytes to "
        "power_w are from: one is taken per second",
        unknown="-1",
        rolled_up="newest",
    ),
    _count("step", "<i8", "number of the step, from 0; of the first one of several", "first"),
    StepColumn(
        name="begin_ns",
        dtype="<i8",
        unit="ns",
        meaning="Unix time at which the step began: the host's clock at the beginning of the log, and its steady "
        "clock since",
        unknown="never",
        rolled_up="first",
    ),
    _ns("step_ns", "duration of the step without pauses"),
    _ns("longest_ns", "duration of the longest of the steps; of one step, its own", "max"),
    _count("longest_step", "<i8", "number of the longest of the steps", "longest"),
    _ns("data_ns", "waiting for the batch"),
    _ns(
        "forward_ns",
        "forward passes; in a script, from the batch (or the pass before) to the beginning of the backward pass",
    ),
    _ns("backward_ns", "backward passes, with what they wait for at their end"),
    _ns("optimizer_ns", "steps of the optimizer, without the passes in its closure"),
    _ns(
        "collective_ns",
        "waiting for collectives: in torch.distributed, and at the end of backward passes for the gradients' "
        "reduction; part of the phases in which it waits",
    ),
    _ns("pause_ns", "checkpoints, evaluations and logging between the step's beginning and its end"),
    _ns("device_ns", "duration of the step by the device's own events, in place of step_ns where the host runs ahead"),
    StepColumn(
        name="loss",
        dtype="<f8",
        unit="",
        meaning="the loss as given; in a script, the sum of what its backward passes began from, unless a GradScaler "
        "has scaled it, or there were several on a device; NaN without the bit 1 of flags: unknown, with it: it was "
        "not a number",
        unknown="NaN",
    ),
    _bytes("allocated_bytes", "bytes of the device that tensors hold", "newest"),
    _bytes("peak_allocated_bytes", "the most since the process began, or since the program has reset it", "max"),
    _bytes("rss_bytes", "resident memory of the process", "newest"),
    _bytes("peak_rss_bytes", "the most since the process began", "max"),
    _bytes("host_available_bytes", "memory of the host that programs can still get", "newest"),
    StepColumn(
        name="throttle_reasons",
        dtype="<i8",
        unit="",
        meaning="why the device's clocks are low: the bits of NVML's clocks throttle reasons",
        unknown="-1",
        rolled_up="any",
    ),
    _number(
        "process_busy",
        "",
        "processors that the threads of the process, without its children, kept busy in the last second: 1.5 are one "
        "and a half",
    ),
    _number("host_busy", "share", "share of the host's processors that were busy in the last second"),
    _number("device_busy", "share", "share of the last second or so in which the device ran a kernel"),
    _number("temperature_c", "°C", "temperature of the device", "max"),
    _number("clock_mhz", "MHz", "clock of the device's processors"),
    _number("power_w", "W", "power that the device draws"),
)
"""In the order in which they lie in the record, without gaps."""

STEP_DTYPE: Final = np.dtype([(column.name, column.dtype) for column in COLUMNS])
"""One record. `STEP_DTYPE.itemsize` is its size in bytes."""

LOSS_GIVEN: Final = 1
THROTTLED: Final = 2

KIND_NUMBERS: Final[dict[StepKind, int]] = {"cold": 0, "plain": 1, "warmup": 2, "active": 3}
UNKNOWN: Final = -1
"""Integers that are not known."""


EARLIER_STEPS_VERSION: Final = 1


class EarlierSteps(Struct, frozen=True, kw_only=True):
    """The last steps before a capture, one entry per step, oldest first."""

    schema_version: int = EARLIER_STEPS_VERSION
    rank: int
    step: list[int]
    end_ns: list[int]
    """Unix time."""
    step_ns: list[int]
    """By the host's clock, without checkpoints, evaluations and logging."""
    load_ns: list[int | None]
    """Host time spent waiting for the batch; None if unknown, as for a script."""


STEP_LOG_VERSION: Final = 2
STEP_LOG_FORMAT: Final = "perfkit step log"
HEADER_BYTES: Final = 8192
STAMP_BYTES: Final = 128
"""So many of the first bytes contain `format`, `generation` and `log_id`: as long as these are the same, a file has
only been appended to."""

_Count = Annotated[int, Meta(ge=0, le=1 << 62)]


class StepLogHeader(Struct, frozen=True, kw_only=True):
    """The first `HEADER_BYTES` of a step log."""

    format: str = STEP_LOG_FORMAT
    generation: _Count = 0
    """How often the log has been rolled up."""
    log_id: Annotated[str, Meta(max_length=32)]
    """Random: another log at the same path has another one."""
    schema_version: int = STEP_LOG_VERSION
    rank: Annotated[int, Meta(ge=0, lt=1 << 31)]
    world_size: Annotated[int, Meta(ge=1, le=1 << 31)]
    host: Annotated[str, Meta(max_length=255)]
    pid: _Count
    started_ns: _Count
    """Unix time at which the log began."""
    device: Annotated[str, Meta(max_length=64)]
    """Such as `cpu` or `cuda:0`."""
    record_bytes: Annotated[int, Meta(ge=1, le=4096)]
    most_bytes: _Count
    """Beyond this size, older records are rolled up."""
    roll_up_factor: Annotated[int, Meta(ge=1)] = 2
    """So many records become one, in the older three quarters of the log, at each roll-up."""
    columns: Annotated[list[StepColumn], Meta(max_length=256)]
    """In the order in which they lie in a record, without gaps."""


class StepRecord(NamedTuple):
    """What the monitor knows of a step when it has ended: the columns of the log without `check`, in their order.

    A tuple, as one is made in every step: the fields are described in `perfkit.records.monitor`.
    """

    steps: int = 1
    kind: int = 1
    flags: int = 0
    sample_age_ms: int = UNKNOWN
    step: int = 0
    begin_ns: int = 0
    step_ns: int = UNKNOWN
    longest_ns: int = UNKNOWN
    longest_step: int = 0
    data_ns: int = UNKNOWN
    forward_ns: int = UNKNOWN
    backward_ns: int = UNKNOWN
    optimizer_ns: int = UNKNOWN
    collective_ns: int = UNKNOWN
    pause_ns: int = UNKNOWN
    device_ns: int = UNKNOWN
    loss: float = math.nan
    allocated_bytes: int = UNKNOWN
    peak_allocated_bytes: int = UNKNOWN
    rss_bytes: int = UNKNOWN
    peak_rss_bytes: int = UNKNOWN
    host_available_bytes: int = UNKNOWN
    throttle_reasons: int = UNKNOWN
    process_busy: float = math.nan
    host_busy: float = math.nan
    device_busy: float = math.nan
    temperature_c: float = math.nan
    clock_mhz: float = math.nan
    power_w: float = math.nan
