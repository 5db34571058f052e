"""The kind of a kernel by its name."""

from collections.abc import Sequence

from perfkit.engine.kinds.kernel_rules import NO_RULE, kernel_code
from perfkit.records.kernel_rules import KERNEL_KINDS, KernelKind, KernelRule


def kernel_kind(name: str, rules: Sequence[KernelRule] = ()) -> KernelKind | None:
    """Return the kind that the rules give a kernel of this name; None if no rule matches."""
    code = kernel_code(name, rules)
    return None if code == NO_RULE else KERNEL_KINDS[code]
