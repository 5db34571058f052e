"""The verdict: the row of a run's ledger that matters first, pauses that matter more, or why there is none."""

from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

from perfkit.engine.losses.context import MIN_COMMON_SHARE, MIN_SHARE
from perfkit.engine.runs.pauses import PauseCost
from perfkit.records.common import Finding
from perfkit.records.facts import Fact, fact
from perfkit.records.per_run.ledger import Ledger, LedgerCause, LedgerRow
from perfkit.records.run import Bound

_MOSTLY_COMPUTE: Final = 0.8
"""Share of the step from which compute bounds it: without all losses a step would be at most a fifth shorter."""
_BOUNDS: Final[dict[LedgerCause, Bound]] = {
    "compute": "compute",
    "late_ranks": "imbalance",
    "slow_network": "communication",
    "bubble": "bubble",
    "communication": "communication",
    "memcpy": "memcpy",
    "data_loading": "input",
}
"""Of all other causes, the host's."""


class Judgement(NamedTuple):
    """What `perfkit.records.run.Verdict` says in words."""

    bound: Bound
    row: LedgerRow | None
    """The row that it is about; None if unknown, or about pauses."""
    pauses: PauseCost | None = None
    """The pauses that it is about."""
    why: Fact | None = None
    """Why it is unknown."""


def judge(ledger: Ledger | None, pauses: PauseCost | None, findings: Collection[Finding], traces: int) -> Judgement:
    """Return the verdict on a run (metrics.md section 10).

    Args:
        ledger: of its step; None without steps.
        pauses: those that take most; None without any.
        findings: all that was found about its traces.
        traces: number of traces.
    """
    why = _why_unknown(findings, traces)
    if why is not None or ledger is None or not ledger.rows:
        return Judgement("unknown", None, why=why or fact("zero_duration"))
    compute, largest = ledger.of("compute"), next(iter(ledger.losses), None)
    lost_ns = largest.ns if largest else 0
    if pauses is not None and pauses.share >= MIN_COMMON_SHARE and pauses.total_ns / pauses.steps > lost_ns:
        return Judgement("pauses", None, pauses)
    least = MIN_SHARE if largest is not None and largest.cause in ("late_ranks", "slow_network") else MIN_COMMON_SHARE
    if largest is not None and largest.share >= least:
        return Judgement(_BOUNDS.get(largest.cause, "host"), largest)
    is_most = compute is not None and compute.share >= _MOSTLY_COMPUTE
    return Judgement("compute" if is_most else "none", compute or largest)


def _why_unknown(findings: Collection[Finding], traces: int) -> Fact | None:
    """Return why traces do not show where the time goes; None if they may."""
    codes = Counter(finding.code for finding in findings)
    if not traces:
        return fact("nothing_read", reason=next((f.message for f in findings if f.code == "no_traces"), None))
    if codes["no_device_events"] >= traces:
        return fact("no_device_activity")
    if codes["duplicate_rank"]:
        return fact("several_jobs")
    return None
