"""What oneCCL's logs contain about a run (metrics.md section 25)."""

from msgspec import Struct

from perfkit.schema.per_run.logged_counts import LoggedCount


class OneCclMessage(Struct, frozen=True, kw_only=True):
    """A warning or an error."""

    text: str
    count: int


class OneCclLogs(Struct, frozen=True, kw_only=True):
    """What oneCCL logged."""

    files: list[str]
    """The first five that contain lines of oneCCL's."""
    file_count: int
    lines: int
    garbled_lines: int
    """Into which two processes wrote at once: skipped."""
    left_out: int
    """Facts beyond the limits."""
    processes: int
    versions: list[LoggedCount]
    providers: list[LoggedCount]
    """Providers of libfabric, and the network interfaces that they use."""
    variables: list[LoggedCount]
    """`CCL_…` that are not at their defaults, with these."""
    warnings: list[OneCclMessage]
    """The most frequent first; without those about variables."""
    warning_count: int
    errors: list[OneCclMessage]
    error_count: int
