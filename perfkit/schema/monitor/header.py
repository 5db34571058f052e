"""The header of a step log, `rank<R>.steps`: JSON, filled up with blanks to `HEADER_BYTES`; the records follow.

A change to it, or to the columns, bumps `STEP_LOG_VERSION`.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from perfkit.schema.monitor.columns import StepColumn

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
