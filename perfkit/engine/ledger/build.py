"""Book the pieces of a step on rows: what late ranks and pipelines cost is taken from what the path runs through."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.engine.ledger.bubble import bubble_share, late_besides_stages
from perfkit.engine.ledger.changing import changes_ranks
from perfkit.engine.ledger.code import NAMED_SHARE, code_of
from perfkit.engine.ledger.pieces import Piece, mean_pieces, path_pieces, scaled
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import Altered, gained_ns, settled, steps_ns, unaltered
from perfkit.engine.whatif.effects.device import has_waits, without_waits
from perfkit.engine.whatif.effects.ranks import healthy
from perfkit.engine.whatif.effects.transfers import network_gain_ns
from perfkit.engine.whatif.values import MOST_REPLAYED
from perfkit.records.common import Category
from perfkit.records.cross_rank import (
    CrossRankSummary,
    LateWork,
    SlowTransfers,
    Straggler,
    all_ranks,
    same_work,
    take_turns,
)
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.per_run.ledger import Ledger, LedgerCause, LedgerRow, StepTime
from perfkit.records.per_run.pipeline import Pipeline
from perfkit.records.rank import RankReport
from perfkit.records.samples import CodeLocation

_OF_CATEGORY: Final[dict[str, tuple[LedgerCause, ...]]] = {
    "compute": ("compute",),
    "communication": ("communication",),
    "memcpy": ("memcpy",),
    "data_loading": ("data_loading",),
    "overhead": CAUSES,
}


class LateRank(NamedTuple):
    """A rank that is late."""

    rank: int
    category: Category | None
    """None if unknown."""
    phase: str | None = None
    code: CodeLocation | None = None


class Claim(NamedTuple):
    """Time of the step that the pieces of several causes are booked on one row for."""

    cause: LedgerCause
    ns: float
    prefers: Sequence[Callable[[Piece], bool]]
    """From which pieces it is taken, the first first; then from any."""
    late: Sequence[LateRank] = ()
    """The late ranks that it is about."""
    when: Literal["always", "at_times", "in_turns", "once"] | None = None
    steps: Sequence[int] = ()
    """The single steps that they are late in."""
    work: LateWork | None = None
    """Why all of them compute or launch for longer."""
    host: str | None = None
    """Theirs, if all of its ranks are late alike."""
    slow: SlowTransfers | None = None
    """The slow transfers that it is about."""


def build_ledger(
    graphs: Sequence[StepGraph],
    ranks: Sequence[RankReport],
    step: StepTime,
    compared: CrossRankSummary | None,
    pipelines: Sequence[Pipeline],
) -> Ledger:
    """Return the ledger of a run.

    Args:
        graphs: of its steps in real time; empty if there is none.
        ranks: their reports.
        step: the step time.
        compared: the comparison of ranks, with those that are late; None for a single rank.
        pipelines: those of the run.
    """
    pieces, rows, states = _pieces(graphs, ranks, step), [], [unaltered(graph) for graph in graphs]
    if compared and (claim := _late_claim(compared, pipelines, step.mean_ns)):
        taken, pieces = _take(claim, pieces)
        rows.append(_row(claim.cause, taken, ranks, claim))
        if states:
            # What is left if they are not late is the path of the replay, which may be another one.
            late = [row.rank for row in claim.late]
            states = [healthy(state, late, compared.compared) for state in states]
            pieces = _pieces([settled(state) for state in states], ranks, step, claim.ns)
    idle_ns = sum(piece.ns for piece in pieces if any(fits(piece) for fits in _OF_WAITING))
    claims = [Claim("synchronisation", min(idle_ns, _gained_by_not_waiting(states)), _OF_WAITING)]
    slow_ns = float(network_gain_ns(states) or 0)
    if compared and slow_ns:
        claims.append(Claim("slow_network", slow_ns, _OF_TRANSFERS, slow=compared.slow_transfers[0]))
    # Slow messages are waited for in the bubble.
    waited_ns = slow_ns * (_share_of_messages(graphs[0]) if graphs else 0.0)
    bubble_ns = bubble_share(pipelines, len(ranks), compared) * step.typical_ns
    claims.append(Claim("bubble", max(0.0, bubble_ns - waited_ns), _OF_BUBBLE))
    for claim in claims:
        taken, pieces = _take(claim, pieces)
        rows.append(_row(claim.cause, taken, ranks, claim))
    by_cause: dict[LedgerCause, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_cause[piece.cause].append(piece)
    rows += [_row(cause, several, ranks) for cause, several in by_cause.items()]
    return Ledger(
        step_ns=round(step.mean_ns),
        is_profiled=step.is_profiled,
        from_path=bool(graphs),
        rows=_whole([row for row in rows if row.ns > 0], round(step.mean_ns)),
    )


def _pieces(
    graphs: Sequence[StepGraph], ranks: Sequence[RankReport], step: StepTime, gained_ns: float = 0.0
) -> list[Piece]:
    """Return the pieces of the step, without what it gains; what is in no recorded step is one of its own."""
    pieces = path_pieces(graphs) if graphs else mean_pieces(ranks)
    recorded_ns = min(step.typical_ns, step.profiled_ns)
    unrecorded = [Piece("unrecorded", None, "", step.mean_ns - recorded_ns)]
    return [*scaled(pieces, recorded_ns - gained_ns), *(unrecorded if step.mean_ns > recorded_ns else ())]


def _gained_by_not_waiting(states: Sequence[Altered]) -> float:
    """Return by how much the mean step is shorter in a replay in which the host does not wait for a device (ns)."""
    parts = sum(len(state.part_ns) for state in states)
    if parts > MOST_REPLAYED or not any(map(has_waits, states)):
        return 0.0
    return gained_ns(steps_ns(states), [without_waits(state) for state in states])


def _late_claim(compared: CrossRankSummary, pipelines: Sequence[Pipeline], step_ns: float) -> Claim | None:
    """Return the claim of ranks that are late in many steps, else in single ones; None without any."""
    if numbers := late_besides_stages(pipelines, compared):
        rows = [row for row in compared.stragglers if row.rank in numbers]
        late = [LateRank(row.rank, row.category, row.phase, row.code) for row in rows]
        gain_ns = min(float(compared.stragglers_gain_ns or 0), step_ns)
        return Claim("late_ranks", gain_ns, _of_late(late), late, _when(rows), work=same_work(rows), host=rows[0].host)
    once = compared.one_off_stragglers
    if not compared.one_off_gain_ns:
        return None
    categories = {one.category for one in once}
    category = categories.pop() if len(categories) == 1 else None
    late = [LateRank(rank, category) for rank in all_ranks(once)]
    gain_ns = min(float(compared.one_off_gain_ns), step_ns)
    return Claim("late_ranks", gain_ns, _of_late(late), late, "once", sorted({one.step for one in once}))


def _of_late(late: Sequence[LateRank]) -> list[Callable[[Piece], bool]]:
    """Return which pieces are late ranks: what they are late in, else what is lost on them or in waiting."""
    causes: dict[int | None, tuple[LedgerCause, ...]] = {row.rank: _causes(row) for row in late}
    return [
        lambda piece: piece.rank in causes and piece.cause in causes[piece.rank],
        lambda piece: piece.rank in causes and piece.cause not in ("compute", "communication"),
        lambda piece: piece.cause == "communication",
        lambda piece: piece.cause != "compute",
    ]


_OF_WAITING: Final[Sequence[Callable[[Piece], bool]]] = (
    lambda piece: piece.cause == "synchronisation",
    lambda piece: piece.cause == "launch_bound",
)
"""What the host does by name between launches is booked on that, though it would cost less beside a busy device."""
_OF_TRANSFERS: Final[Sequence[Callable[[Piece], bool]]] = (lambda piece: piece.cause == "communication",)
_OF_BUBBLE: Final[Sequence[Callable[[Piece], bool]]] = (
    lambda piece: piece.cause == "communication",
    lambda piece: piece.cause == "compute",
)


def _share_of_messages(graph: StepGraph) -> float:
    """Return which share of what slow transfers take too long is in a pipeline's messages."""
    if graph.slow is None:
        return 0.0
    excess_ns = graph.duration_ns * (1 - 1 / graph.slow)
    of_pipelines = np.array(["pp" in name.split("+") for name in graph.dimensions] + [False])[graph.nodes.dimension]
    return float(excess_ns[of_pipelines].sum() / max(1.0, excess_ns.sum()))


def _take(claim: Claim, pieces: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces that a claim takes, and what is left; the largest are taken first."""

    def order(piece: Piece) -> tuple[int, float]:
        fitting = (number for number, fits in enumerate(claim.prefers) if fits(piece))
        return next(fitting, len(claim.prefers)), -piece.ns

    left_ns, taken, rest = claim.ns, [], []
    for piece in sorted(pieces, key=order):
        part_ns = min(left_ns, piece.ns)
        left_ns -= part_ns
        if part_ns > 0:
            taken.append(piece._replace(ns=part_ns))
        if piece.ns > part_ns:
            rest.append(piece._replace(ns=piece.ns - part_ns))
    return taken, rest


def _row(
    cause: LedgerCause, pieces: Sequence[Piece], ranks: Sequence[RankReport], claim: Claim | None = None
) -> LedgerRow:
    """Return a row, its time rounded."""
    by_name: dict[str, float] = defaultdict(float)
    late = claim.late if claim else ()
    causes = {one for row in late for one in _causes(row)}
    for piece in pieces:
        by_name[piece.name if piece.cause in (causes or (cause,)) else ""] += piece.ns
    largest = max(by_name, key=by_name.__getitem__, default="")
    late_in = _late_in(late, pieces)
    # Of ranks that are late in several categories, a name would be said of all.
    is_named = by_name.get(largest, 0.0) >= NAMED_SHARE * sum(by_name.values()) and (late_in is not None or not late)
    return LedgerRow(
        cause=cause,
        ns=round(sum(piece.ns for piece in pieces)),
        share=0.0,
        ranks=[row.rank for row in late],
        late=claim.when if claim else None,
        steps=list(claim.steps) if claim else [],
        late_in=late_in,
        work=claim.work if claim and late_in in ("compute", "launch_bound") else None,
        host=claim.host if claim else None,
        on_changing_ranks=is_named and changes_ranks(cause, largest, ranks),
        phase=late[0].phase if len(late) == 1 else None,
        name=largest if largest and is_named else None,
        slow=claim.slow if claim else None,
        code=code_of(cause, ranks, late),
    )


def _causes(row: LateRank) -> tuple[LedgerCause, ...]:
    return _OF_CATEGORY[row.category] if row.category else ()


def _when(late: Sequence[Straggler]) -> Literal["always", "at_times", "in_turns"]:
    if take_turns(late):
        return "in_turns"
    return "at_times" if any(row.every > 1 or row.steps_late < row.steps for row in late) else "always"


def _late_in(late: Sequence[LateRank], pieces: Sequence[Piece]) -> LedgerCause | None:
    """Return what late ranks take longer in: of idle time, the cause of most of what they are late in."""
    categories = {row.category for row in late}
    if len(categories) != 1 or None in categories:
        return None
    causes = _causes(late[0])
    ns: dict[LedgerCause, float] = dict.fromkeys(causes, 0.0)
    for piece in pieces:
        if piece.cause in ns:
            ns[piece.cause] += piece.ns
    known = max(causes, key=ns.__getitem__)
    return known if len(causes) == 1 or ns[known] else "unknown"


def _whole(rows: Sequence[LedgerRow], step_ns: int) -> list[LedgerRow]:
    """Return rows that add up to the step exactly, with their shares, largest first.

    Rounding is booked on the largest, but not on late ranks: their figure is that of other tables, too.
    """
    rest_ns = step_ns - sum(row.ns for row in rows)
    largest = max(rows, key=lambda row: (not row.ranks, row.ns), default=None)
    exact = [replace(row, ns=row.ns + rest_ns) if row is largest else row for row in rows]
    exact = [replace(row, share=row.ns / step_ns if step_ns else 0.0) for row in exact]
    return sorted(exact, key=lambda row: -row.ns)
