"""The record of a rule that classifies device kernels by name."""

from typing import Final, Literal, get_args

from msgspec import Struct

KernelKind = Literal["communication", "compute", "memcpy", "wait"]
"""What a kernel does; `wait` is no work at all: the device waits for an event."""
KERNEL_KINDS: Final[tuple[KernelKind, ...]] = get_args(KernelKind)


class KernelRule(Struct, frozen=True):
    """A rule for the names of device kernels (metrics.md section 2)."""

    pattern: str
    """Regular expression that the start of a kernel's own or qualified name must match. Return type, template arguments
    and parameters are not part of the name."""
    kind: KernelKind
    source: str = ""
    """Whose kernels these are, and where their names come from."""
