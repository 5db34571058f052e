"""A user's rules for kernels that did nothing: a pattern with a mistake, or one that an earlier rule covers."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perfkit.records.common import Observation
from perfkit.records.kernel_rules import KernelRuleUse


def add_rule_uses(by_trace: Iterable[Sequence[KernelRuleUse]]) -> list[KernelRuleUse]:
    """Return what each rule did in all traces; a part without any trace is empty."""
    return [
        replace(
            same[0],
            matched_kernels=sum(use.matched_kernels for use in same),
            decided_kernels=sum(use.decided_kernels for use in same),
        )
        for same in zip(*filter(None, by_trace), strict=True)
    ]


def unused_rules(uses: Sequence[KernelRuleUse]) -> list[Observation]:
    """Return a finding that lists the rules that decided on no kernel, if there are any."""
    unused = [(number, use) for number, use in enumerate(uses, 1) if not use.decided_kernels]
    return [Observation("kernel_rules_unused", {"unused": unused})] if unused else []
