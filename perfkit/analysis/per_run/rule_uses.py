"""A user's rules for kernels that did nothing: a pattern with a mistake, or one that an earlier rule covers."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from perfkit.schema.common import Finding
from perfkit.schema.kernel_rules import KernelRuleUse
from perfkit.util.formatting import escape_unprintable

_MOST_LISTED: Final = 5
_LONGEST_PATTERN: Final = 60


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


def unused_rules(uses: Sequence[KernelRuleUse]) -> list[Finding]:
    """Return a finding that lists the rules that decided on no kernel, if there are any."""
    unused = [(number, use) for number, use in enumerate(uses, 1) if not use.decided_kernels]
    if not unused:
        return []
    listed = [f"rule {number} ({_shortened(use.pattern)}) {_why(use)}" for number, use in unused[:_MOST_LISTED]]
    more = len(unused) - len(listed)
    message = f"rules for kernels without effect: {', '.join(listed)}{f', and {more} more' if more else ''}"
    return [Finding(code="kernel_rules_unused", severity="warning", message=message)]


def _why(use: KernelRuleUse) -> str:
    return "comes after rules that match its kernels" if use.matched_kernels else "matches no kernel"


def _shortened(pattern: str) -> str:
    shown = escape_unprintable(pattern)
    return shown if len(shown) <= _LONGEST_PATTERN else f"{shown[:_LONGEST_PATTERN]}…"
