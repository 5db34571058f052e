"""Results of `perfkit doctor` and `perfkit hta`; a change bumps `DOCTOR_VERSION` or `EXTERNAL_TABLE_VERSION`."""

from typing import Final, Literal

from msgspec import Struct

from perfkit._version import __version__

DOCTOR_VERSION: Final = 1

CheckState = Literal["ok", "absent", "problem"]
"""`absent`: optional, and not there; `problem`: something that perfkit needs, or that is there, does not work."""


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    state: CheckState
    found: str
    """Versions, places and numbers, in words."""
    remedy: str | None = None
    """What to do; None if nothing needs to be done."""


class DoctorReport(Struct, frozen=True, kw_only=True):
    """What perfkit can use on this machine, as one process sees it."""

    schema_version: int = DOCTOR_VERSION
    perfkit_version: str = __version__
    rank: int = 0
    """Of this process, from the launcher; 0 without one."""
    world_size: int = 1
    host: str
    checks: list[Check]


EXTERNAL_TABLE_VERSION: Final = 2


class ExternalTable(Struct, frozen=True, kw_only=True):
    """A table of another tool, unchanged."""

    schema_version: int = EXTERNAL_TABLE_VERSION
    tool: str
    """The tool's package and version."""
    analysis: str
    run: str
    ranks: list[int]
    columns: list[str]
    rows: list[list[str | int | float | bool | None]]
