"""The record of one step, in memory."""

import math
from typing import NamedTuple

from perfkit.schema.monitor.columns import UNKNOWN


class StepRecord(NamedTuple):
    """What the monitor knows of a step when it has ended: the columns of the log without `check`, in their order.

    A tuple, as one is made in every step: the fields are described in `perfkit.schema.monitor.columns`.
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
