"""Insight rule for expert parallelism: unequal numbers of tokens."""

from typing import Final

from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext
from perfkit.util.formatting import duration

_MIN_SHARE: Final = 0.05
"""Smallest share of the step that is reported."""
_UNEQUAL: Final = 1.2
"""Tokens of the fullest rank, as a multiple of the mean, from which the load counts as unequal."""


def _imbalance(context: RunContext) -> InsightDraft | None:
    row = next((one for one in context.run.divided_work if one.dimension == "ep"), None)
    if row is None or row.imbalance is None or row.wait_ns is None or row.imbalance < _UNEQUAL:
        return None
    # What is waited for and hidden costs nothing.
    lost_ns = min(row.wait_ns, row.exposed_ns)
    if context.share(lost_ns) < _MIN_SHARE:
        return None
    return InsightDraft(
        f"the experts of the fullest rank of each layer get {row.imbalance:.2f} times the mean tokens, and ranks wait "
        f"{duration(lost_ns)} per step for others in the dimension ep",
        {"imbalance": row.imbalance, "wait_ns": lost_ns},
        "balance the load of the experts: an auxiliary loss, a bias of the router, or a capacity",
        lost_ns,
    )


EXPERTS: Final = Rule("expert_imbalance", _imbalance)
