"""Book the pieces of a step on rows: what late ranks and pipelines cost is taken from what the path runs through."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.engine.ledger.bubble import bubble_share, late_besides_stages
from perfkit.engine.ledger.code import NAMED_SHARE, changes_ranks, code_of, code_of_all
from perfkit.engine.ledger.pieces import Piece, mean_pieces, path_pieces, scaled
from perfkit.engine.ranks.delay import RankDelay
from perfkit.engine.ranks.summary import Compared
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import Altered, gained_ns, settled, steps_ns, unaltered
from perfkit.engine.whatif.effects.device import has_waits, without_waits
from perfkit.engine.whatif.effects.ranks import healthy
from perfkit.engine.whatif.effects.transfers import without_slow
from perfkit.engine.whatif.values import MOST_REPLAYED
from perfkit.records.common import Category
from perfkit.records.cross_rank import (
    CrossRankSummary,
    Straggler,
    all_ranks,
    same_work,
    steps_of,
    take_turns,
)
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.per_run.ledger import Ledger, LedgerCause, LedgerRow, StepTime
from perfkit.records.per_run.pipeline import Pipeline
from perfkit.records.rank import RankReport

_OF_CATEGORY: Final[dict[str, tuple[LedgerCause, ...]]] = {
    "compute": ("compute",),
    "communication": ("communication",),
    "memcpy": ("memcpy",),
    "data_loading": ("data_loading",),
    "overhead": CAUSES,
}


class Claim(NamedTuple):
    """Time of the step that the pieces of several causes are booked on one row for."""

    row: LedgerRow
    """What is known of it without the pieces."""
    ns: float
    prefers: Sequence[Callable[[Piece], bool]]
    """From which pieces it is taken, the first first; then from any."""
    late_in: Mapping[int, Category | None] = {}
    """What each of its late ranks is late in; None if unknown."""
    delays: Sequence[RankDelay] = ()
    """What is left is the path without these."""


def build_ledger(
    graphs: Sequence[StepGraph],
    ranks: Sequence[RankReport],
    step: StepTime,
    compared: Compared | None,
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
    summary, claimed_ns = compared and compared.summary, 0.0
    for claim in _late_claims(compared, pipelines, step.mean_ns):
        taken, pieces = _take(claim, pieces)
        rows.append(_row(claim.row, taken, ranks, claim.late_in))
        claimed_ns += claim.ns
        if states:
            # What is left if they are not late is the path of the replay, which may be another one.
            states = [healthy(state, claim.delays, summary.compared if summary else ()) for state in states]
            pieces = _pieces([settled(state) for state in states], ranks, step, claimed_ns)
    idle_ns = sum(piece.ns for piece in pieces if any(fits(piece) for fits in _OF_WAITING))
    claims = [Claim(_empty("synchronisation"), min(idle_ns, _gained_by_not_waiting(states)), _OF_WAITING)]
    slow = list(_network_claims(summary, states)) if summary else []
    claims += slow
    # Slow messages are waited for in the bubble.
    waited_ns = sum(claim.ns for claim in slow) * (_share_of_messages(graphs[0]) if graphs else 0.0)
    bubble_ns = bubble_share(pipelines, len(ranks), summary) * step.typical_ns
    claims.append(Claim(_empty("bubble"), max(0.0, bubble_ns - waited_ns), _OF_BUBBLE))
    for claim in claims:
        taken, pieces = _take(claim, pieces)
        rows.append(_row(claim.row, taken, ranks))
    by_cause: dict[LedgerCause, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_cause[piece.cause].append(piece)
    rows += [_row(_empty(cause), several, ranks) for cause, several in by_cause.items()]
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


def _empty(cause: LedgerCause, **known: Any) -> LedgerRow:
    return LedgerRow(cause=cause, ns=0, share=0.0, **known)


def _late_claims(compared: Compared | None, pipelines: Sequence[Pipeline], step_ns: float) -> Iterator[Claim]:
    """Yield the claims of ranks that are late in many steps, and in single ones."""
    if compared is None:
        return
    found = compared.summary
    if late := late_besides_stages(pipelines, found):
        late_in: dict[int, Category | None] = {row.rank: row.category for row in late}
        row = _empty(
            "late_ranks",
            ranks=[*late_in],
            late=_when(late),
            work=same_work(late),
            host=late[0].host,
            phase=late[0].phase if len(late) == 1 else None,
            code=code_of_all(late),
        )
        gain_ns = min(float(found.stragglers_gain_ns or 0), step_ns)
        yield Claim(row, gain_ns, _of_late(late_in), late_in, compared.late)
    if found.one_off_gain_ns:
        once = found.one_off_stragglers
        categories = {one.category for one in once}
        late_in = dict.fromkeys(all_ranks(once), categories.pop() if len(categories) == 1 else None)
        row = _empty("late_ranks", ranks=[*late_in], late="once", steps=steps_of(once))
        yield Claim(row, min(float(found.one_off_gain_ns), step_ns), _of_late(late_in), late_in, compared.single)


def _network_claims(summary: CrossRankSummary, states: Sequence[Altered]) -> Iterator[Claim]:
    """Yield the claim of each cause of a slow network: what the step gains without it and those before."""
    before_ns = steps_ns(states) if states else None
    for count, cause in enumerate(summary.slow_transfers, start=1):
        if before_ns is not None and cause.gain_ns is not None:
            then_ns = steps_ns([without_slow(state, slice(count)) for state in states])
            row = _empty("slow_network", steps=cause.steps, slow=cause)
            yield Claim(row, max(0.0, float((before_ns - then_ns).mean())), _OF_TRANSFERS)
            before_ns = then_ns


def _of_late(late_in: Mapping[int, Category | None]) -> list[Callable[[Piece], bool]]:
    """Return which pieces are late ranks: what they are late in, else what is lost on them or in waiting."""
    causes: dict[int | None, tuple[LedgerCause, ...]] = {rank: _causes(name) for rank, name in late_in.items()}
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
    excess_ns = graph.duration_ns * (1 - 1 / graph.slow.prod(axis=0))
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
    known: LedgerRow,
    pieces: Sequence[Piece],
    ranks: Sequence[RankReport],
    late: Mapping[int, Category | None] = MappingProxyType({}),
) -> LedgerRow:
    """Return a row with what its pieces tell, its time rounded."""
    by_name: dict[str, float] = defaultdict(float)
    causes = {one for category in late.values() for one in _causes(category)}
    for piece in pieces:
        by_name[piece.name if piece.cause in (causes or (known.cause,)) else ""] += piece.ns
    largest = max(by_name, key=by_name.__getitem__, default="")
    late_in = _late_in(set(late.values()), pieces)
    # Of ranks that are late in several categories, a name would be said of all.
    is_named = by_name.get(largest, 0.0) >= NAMED_SHARE * sum(by_name.values()) and (late_in is not None or not late)
    return replace(
        known,
        ns=round(sum(piece.ns for piece in pieces)),
        late_in=late_in,
        work=known.work if late_in in ("compute", "launch_bound") else None,
        on_changing_ranks=is_named and changes_ranks(known.cause, largest, ranks),
        name=largest if largest and is_named else None,
        code=known.code if late else code_of(known.cause, ranks),
    )


def _causes(category: Category | None) -> tuple[LedgerCause, ...]:
    return _OF_CATEGORY[category] if category else ()


def _when(late: Sequence[Straggler]) -> Literal["always", "at_times", "in_turns"]:
    if take_turns(late):
        return "in_turns"
    return "at_times" if any(row.every > 1 or row.steps_late < row.steps for row in late) else "always"


def _late_in(categories: Collection[Category | None], pieces: Sequence[Piece]) -> LedgerCause | None:
    """Return what late ranks take longer in: of idle time, the cause of most of what they are late in."""
    causes = _causes(next(iter(categories))) if len(categories) == 1 else ()
    if not causes:
        return None
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
