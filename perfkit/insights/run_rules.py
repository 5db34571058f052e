"""The rules that make insights, as rows: each says one thing of a run, or nothing.

A rule claims only what was measured: a share of the step that is exposed, and a rank, load or collective that the
report names. What it would give back is an upper bound: the exposed time itself.
"""

from typing import Final

from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext, slow_rank
from perfkit.scaling.points import oversubscribed as shared_cores
from perfkit.schema.common import Category
from perfkit.schema.cross_rank import Straggler
from perfkit.util.formatting import duration, escape_unprintable, format_percent, size

NOTICEABLE: Final = 0.05
"""Share of the step from which on a loss is spoken of."""
_HOST_NOTICEABLE: Final = 0.1
"""The same for overhead: some of it is in every step."""
_MOSTLY: Final = 0.5

_WORDS: Final = {"compute": "computation", "memcpy": "copying", "data_loading": "loader", "overhead": "host"}


def _oversubscribed(facts: RunContext) -> InsightDraft | None:
    shared = shared_cores(facts.run.hosts)
    if shared is None:
        return None
    host = next(host for host in facts.run.hosts if shared_cores([host]))
    fall, evidence = "", {"ranks": float(host.ranks), "threads": float(host.threads), "cores": float(host.cores or 0)}
    if facts.place is not None and facts.place[2].efficiency.value < facts.place[1].efficiency.value:
        series, before, point = facts.place
        fall = (
            f": efficiency falls from {format_percent(before.efficiency.value)} "
            f"to {format_percent(point.efficiency.value)} ({series.kind} scaling)"
        )
        evidence |= {"efficiency_before": before.efficiency.value, "efficiency": point.efficiency.value}
    return InsightDraft(
        f"{shared} of {escape_unprintable(host.host)} take turns{fall}; "
        "what this run shows of waiting and overhead follows from it",
        evidence,
        f"at most {ranks_of(host.cores or 0)} on {escape_unprintable(host.host)}, or more hosts"
        if host.ranks > (host.cores or 0)
        else f"--threads {max(1, (host.cores or 1) // host.ranks)}",
        None,
    )


def _waiting(facts: RunContext) -> InsightDraft | None:
    parts = _communication(facts)
    if parts is None:
        return None
    wait_ns, exposed_ns = parts
    slow = slow_rank(facts.run)
    # The first collective's waiting would be the ranks' start, were it not known who they wait for.
    if wait_ns < _MOSTLY * exposed_ns or (slow is None and facts.has("start_skew")):
        return None
    partial = len(facts.run.ranks) < facts.run.world_size
    # Of a partial set transfers are an upper bound: a rank that is not here may have been later.
    part = f"{'at least ' if partial else ''}{percent(wait_ns / exposed_ns)} of it waiting for"
    claim = _in_turn(facts, wait_ns) if slow is None else _for_one(facts, slow)
    evidence = {"exposed_share": facts.share(exposed_ns), "wait_share": wait_ns / exposed_ns, "wait_ns": wait_ns}
    return claim._replace(
        sentence=f"{_costs(facts, exposed_ns)}, {part} {claim.sentence}", evidence=evidence | claim.evidence
    )


def _in_turn(facts: RunContext, wait_ns: float) -> InsightDraft:
    """Say that no one rank is waited for."""
    step = "let ranks meet less often" + (": --accumulate" if facts.option("accumulate") is not None else "")
    return InsightDraft("other ranks, no one rank in most steps", {}, step, wait_ns)


def _for_one(facts: RunContext, slow: Straggler) -> InsightDraft:
    """Say which rank is waited for, and in what it takes longer."""
    longer = (
        f", whose {_WORDS[slow.category]} takes {duration(slow.category_ns)} longer a step" if slow.category else ""
    )
    return InsightDraft(
        f"rank {slow.rank}{longer}",
        {"rank": float(slow.rank), "lag_ns": float(slow.lag_ns), "longer_ns": float(slow.category_ns)},
        _for_slow_rank(facts, slow.category, slow.rank),
        min(float(slow.lag_ns), facts.step_ns),
    )


def _communication(facts: RunContext) -> tuple[float, float] | None:
    """Return waiting and all of exposed communication of a step; None where it is little, or mostly not matched."""
    found = facts.run.efficiency
    exposed_ns = facts.exposed_ns["communication"]
    if found is None or facts.share(exposed_ns) < NOTICEABLE:
        return None
    whole = found.wait_ns + found.transfer_ns
    if not whole or found.unmatched_ns > _MOSTLY * whole:
        return None
    return exposed_ns * found.wait_ns / whole, exposed_ns


def _costs(facts: RunContext, exposed_ns: float) -> str:
    points = f"{100 * facts.share(exposed_ns):.0f} points of efficiency"
    return f"exposed communication costs {points} at {ranks_of(facts.run.world_size)}"


def _for_slow_rank(facts: RunContext, category: Category | None, rank: int) -> str:
    if category == "data_loading":
        return _for_input(facts)
    return {
        "compute": f"see whether rank {rank} has more work, a slower device, or company on it",
        "overhead": f"see what the host of rank {rank} does between kernels, and what else runs there",
        "memcpy": f"see how rank {rank} copies: pinned memory, and to the device next to its cores",
    }.get(category or "", f"see what keeps rank {rank}: no part of its steps is longer than the others'")


def _transfer(facts: RunContext) -> InsightDraft | None:
    exposed_ns = facts.exposed_ns["communication"]
    if facts.share(exposed_ns) < NOTICEABLE or facts.run.world_size < 2:
        return None
    parts = _communication(facts)
    if parts is None or len(facts.run.ranks) < facts.run.world_size:
        return _unsplit(facts, exposed_ns) if parts is None or parts[0] < _MOSTLY * exposed_ns else None
    transfer_ns = exposed_ns - parts[0]
    if transfer_ns <= _MOSTLY * exposed_ns or facts.share(transfer_ns) < NOTICEABLE:
        return None
    rows = facts.run.cross_rank.collectives if facts.run.cross_rank else []
    most = max(rows, key=lambda row: row.count * (row.transfer_ns or 0), default=None)
    what = (
        f", mostly {escape_unprintable(most.operator)} of {size(most.bytes)}"
        if most and most.bytes and most.transfer_ns
        else ""
    )
    evidence = {"exposed_share": facts.share(exposed_ns), "transfer_ns": transfer_ns}
    if most and most.busbw:
        evidence["busbw"] = most.busbw
    sentence = f"{_costs(facts, exposed_ns)}, {percent(transfer_ns / exposed_ns)} of it transfers{what}"
    return InsightDraft(sentence, evidence, _for_transfer(facts), transfer_ns)


def _unsplit(facts: RunContext, exposed_ns: float) -> InsightDraft:
    """Speak of communication whose waiting is not known: of ranks without a trace nobody knows who was late."""
    missing = facts.run.world_size - len(facts.run.ranks)
    why = f"{missing} ranks have no trace here" if missing > 0 else "most of it has no counterpart on another rank"
    return InsightDraft(
        f"{_costs(facts, exposed_ns)}; how much of it is waiting cannot be told: {why}",
        {"exposed_share": facts.share(exposed_ns), "exposed_ns": exposed_ns},
        "analyse the traces of all ranks" if missing > 0 else _for_transfer(facts),
        exposed_ns,
    )


def _for_transfer(facts: RunContext) -> str:
    if facts.option("overlap") is False:
        return "leave --no-overlap out: average gradients during backward"
    if facts.option("accumulate") is not None:
        return "--accumulate 2 halves the transfers a sample; a larger --batch-size hides more of them"
    return "accumulate gradients over micro-steps, or raise the batch a rank: fewer transfers a sample"


def _without_slow_rank(facts: RunContext, category: Category) -> float:
    """Return the exposed time of a step without what the slow rank alone has more: that is told as waiting for it."""
    slow = slow_rank(facts.run)
    alone = slow.category_ns / len(facts.run.ranks) if slow is not None and slow.category == category else 0.0
    return facts.exposed_ns[category] - alone


def _input(facts: RunContext) -> InsightDraft | None:
    exposed_ns = _without_slow_rank(facts, "data_loading")
    loads = facts.run.data_loading
    if facts.share(exposed_ns) < NOTICEABLE or loads is None:
        return None
    against = f", {facts.load_ratio:.1f} times that from memory" if facts.load_ratio and facts.load_ratio > 1.1 else ""
    source = f" from {escape_unprintable(loads.source)}" if loads.source else ""
    evidence = {"exposed_share": facts.share(exposed_ns), "median_load_ns": float(loads.median_ns)}
    if facts.load_ratio:
        evidence["load_ratio"] = facts.load_ratio
    near, storage = "", ""
    if loads.file_share is not None:
        evidence["file_share"] = loads.file_share
        if loads.file_share >= _MOSTLY:
            near = f", at {percent(loads.file_share)} of the speed at which its file can be read at all"
            storage = ", or faster storage"
    return InsightDraft(
        f"waiting for data takes {percent(facts.share(exposed_ns))} of the step: a load{source} takes "
        f"{duration(loads.median_ns)} in the median{against}{near}",
        evidence,
        _for_input(facts) + storage,
        exposed_ns,
    )


def _for_input(facts: RunContext) -> str:
    workers = facts.option("num_workers")
    if facts.option("read") == "per-sample":
        return "batched reads (--read batched), or --num-workers 2"
    if workers == 0:
        return "--num-workers 2 loads while the step computes"
    if workers is not None:
        return f"more than {workers} workers, --prefetch, or faster storage"
    return "read in batches, or with loader workers that read ahead"


def _host(facts: RunContext) -> InsightDraft | None:
    # The profiler works on the host: what it adds to a step is no overhead of the training.
    exposed_ns = _without_slow_rank(facts, "overhead") - _profiler_ns(facts)
    if facts.share(exposed_ns) < _HOST_NOTICEABLE:
        return None
    less = ", the profiler's cost taken off" if _profiler_ns(facts) else ""
    return InsightDraft(
        f"for {percent(facts.share(exposed_ns))} of the step ({duration(exposed_ns)}{less}) nothing computes, "
        "communicates, copies or loads: launch gaps, Python, synchronisation",
        {"exposed_share": facts.share(exposed_ns), "overhead_ns": exposed_ns, "profiler_ns": _profiler_ns(facts)},
        _for_host(facts),
        exposed_ns,
    )


def _profiler_ns(facts: RunContext) -> float:
    """Return what the profiler adds to a step; 0 where that is not known."""
    cost = facts.run.profiler_cost
    if cost is None or cost.recorded_step_ns is None or cost.plain_step_ns is None:
        return 0.0
    return float(max(0, cost.recorded_step_ns - cost.plain_step_ns))


def _for_host(facts: RunContext) -> str:
    gpu = any(rank.device == "gpu" for rank in facts.run.ranks)
    if facts.option("compile") is None:
        return "look at the gaps in the trace: launches, Python, synchronisation"
    if gpu and facts.option("compile") is False:
        return "--compile, or a larger batch: fewer launches for the same work"
    return "a larger batch: more work a launch" if gpu else "--pyinstrument shows which Python it is"


def _copies(facts: RunContext) -> InsightDraft | None:
    exposed_ns = _without_slow_rank(facts, "memcpy")
    if facts.share(exposed_ns) < NOTICEABLE:
        return None
    return InsightDraft(
        f"copies that nothing hides take {percent(facts.share(exposed_ns))} of the step ({duration(exposed_ns)})",
        {"exposed_share": facts.share(exposed_ns), "memcpy_ns": exposed_ns},
        "--pin-memory" if facts.option("pin_memory") is False else "copy ahead, from pinned memory and without waiting",
        exposed_ns,
    )


OVERSUBSCRIBED: Final = Rule("oversubscribed", _oversubscribed, explains_all=True)
WAITING: Final = Rule("waiting", _waiting)
TRANSFER: Final = Rule("transfer", _transfer)
INPUT: Final = Rule("input", _input)
HOST: Final = Rule("host", _host)
COPIES: Final = Rule("copies", _copies)
RULES: Final = (OVERSUBSCRIBED, WAITING, TRANSFER, INPUT, HOST, COPIES)
"""Evaluated on each run, in this order."""


def percent(fraction: float) -> str:
    """Return a share as whole per cent."""
    return f"{100 * fraction:.0f} %"


def ranks_of(count: int) -> str:
    """Return a number of ranks in words."""
    return "1 rank" if count == 1 else f"{count} ranks"
