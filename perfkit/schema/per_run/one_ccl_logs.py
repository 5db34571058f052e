"""What oneCCL's logs say about a run (metrics.md section 25)."""

from msgspec import Struct


class OneCclCount(Struct, frozen=True, kw_only=True):
    """A name and a value that processes logged: a version, a provider of the network, or a variable."""

    name: str
    value: str
    processes: int
    """0 if the log does not name them."""


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
    versions: list[OneCclCount]
    providers: list[OneCclCount]
    """Providers of libfabric, and the network interfaces that they use."""
    variables: list[OneCclCount]
    """`CCL_…` that are not at their defaults, with these."""
    warnings: list[OneCclMessage]
    """The most frequent first; without those about variables."""
    warning_count: int
    errors: list[OneCclMessage]
    error_count: int
