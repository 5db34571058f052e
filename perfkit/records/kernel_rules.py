"""The record of a rule that classifies device kernels by name."""

from typing import Final, Literal, get_args

from msgspec import Struct

from perfkit.records.per_rank.work import KERNEL_CLASSES, KernelClass

KernelKind = Literal["communication", "compute", "memcpy", "wait"]
"""What a kernel does; `wait` is no work at all: the device waits for an event."""
GIVEN_CLASSES: Final = tuple(one for one in KERNEL_CLASSES if one not in ("copy", "communication"))
"""Classes that a rule can give; which kernels are copies and communication follows from the kind."""
KERNEL_KINDS: Final[tuple[KernelKind, ...]] = get_args(KernelKind)


class KernelRule(Struct, frozen=True):
    """A rule for the names of device kernels (metrics.md section 2)."""

    pattern: str
    """Regular expression that the start of a kernel's own or qualified name must match. Return type, template arguments
    and parameters are not part of the name."""
    kind: KernelKind
    source: str = ""
    """Whose kernels these are, and where their names come from."""
    kernel_class: KernelClass | None = None
    """Class of a `compute` kernel (metrics.md section 20); without one, what perfkit finds."""


class KernelRuleUse(Struct, frozen=True, kw_only=True):
    """What a user's rule did in the traces that were read."""

    pattern: str
    matched_kernels: int = 0
    """Kernels whose names it matches."""
    decided_kernels: int = 0
    """Those of them that no earlier rule matches: their kind is that of this rule."""
