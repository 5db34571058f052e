"""What idle time costs, with its largest cause."""

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Final

from perfkit.engine.idle.remedies import (
    IdlePart,
    Remedy,
    change_of,
    evidence,
    fewer_launches,
    named_by,
    remedy,
    saving_ns,
)
from perfkit.engine.losses.context import MIN_COMMON_SHARE, MIN_SHARE, LossContext
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.records.aggregate import MAJORITY, merge_idle
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.idle import CAUSES, Cause, PossibleLoading
from perfkit.records.per_run.ledger import LedgerRow
from perfkit.records.rank import DeviceTimes

_OF_PROCESS: Final = tuple(cause for cause in CAUSES if cause != "other_device")
"""Causes that are no matter of how its devices share the work."""


def host_idle(context: LossContext, number: int) -> Loss | None:
    """Idle time, with the cause that is so many places below the largest."""
    rows = [row for row in context.ledger.rows if row.cause in _OF_PROCESS and row.share >= MIN_COMMON_SHARE]
    if number >= len(rows):
        return None
    row = rows[number]
    part = _part(context, row.cause, row.name)
    advice = remedy(part, context) if part else _reduce_idle(context)
    loading = _possible_loading(context)
    return Loss(
        cause=row.cause,
        row=row.cause,
        code=row.code.text if row.code else part.largest.detail if part and part.is_named() else None,
        facts=_where(part, row, loading),
        evidence=evidence(part) if part else {},
        remedy=(*advice.facts, *((fact("mark_loading", name=loading.name),) if loading else ())),
        per_step_ns=saving_ns(part, row.ns) if part else row.ns,
        change=_change(part, row) if part and not advice.only_finds_out else None,
        only_finds_out=advice.only_finds_out,
    )


def idle_devices(context: LossContext) -> Loss | None:
    """Devices that are idle while others of their process work, on the rank with most of it."""
    row = context.ledger.of("other_device")
    if row is None or row.share < MIN_COMMON_SHARE:
        return None
    devices = max((rank.devices for rank in context.run.ranks), key=_beside_ns, default=[])
    why, remedy_fact = _unbalanced(devices) if devices else ((), fact("less_other_device"))
    return Loss(cause="other_device", row="other_device", facts=why, remedy=(remedy_fact,), per_step_ns=row.ns)


def _unbalanced(devices: Sequence[DeviceTimes]) -> tuple[Facts, Fact]:
    """Return why devices are idle, and what to do: they take turns, or have unequal work.

    Were they equally busy, all could be done as soon as the mean; what then is left, they take in turns.
    """
    work_ns = {one.device: sum(getattr(one.exposed_ns, category) for category in _OF_DEVICE) for one in devices}
    most, mean_ns = max(work_ns, key=work_ns.__getitem__), fmean(work_ns.values())
    if len(devices) * (work_ns[most] - mean_ns) < MAJORITY * _beside_ns(devices):
        return (fact("devices_in_turns", devices=len(devices)),), fact("overlap_devices")
    return (fact("devices_unequal", device=most, times=work_ns[most] / mean_ns),), fact("balance_devices")


_OF_DEVICE: Final = ("compute", "communication", "memcpy")


def _beside_ns(devices: Sequence[DeviceTimes]) -> int:
    return sum(one.beside_ns for one in devices)


def _change(part: IdlePart, row: LedgerRow) -> str | None:
    """Return the change that was replayed; None where the row has another name than the part that advice is about."""
    by_name = part.cause in ("host_work", "not_running") and part.is_named()
    return None if by_name and part.name != row.name else change_of(part)


def _where(part: IdlePart | None, row: LedgerRow, loading: PossibleLoading | None) -> Facts:
    """Return what the row does not name: what may be loading, or the largest part."""
    if loading:
        return (fact("is_it_loading", name=loading.name),)
    return (
        (fact("in_code", name=part.largest.detail),) if part and part.is_named() and not (row.name or row.code) else ()
    )


def _possible_loading(context: LossContext) -> PossibleLoading | None:
    """Return what prepares each step and has most of its idle time, if no loading was recognised."""
    found = merge_idle(context.run.ranks).possible_loading
    if context.run.data_loading or found is None:
        return None
    per_step_ns = found.total_ns / context.rank_steps
    is_most = per_step_ns >= MAJORITY * context.exposed_ns["overhead"]
    return found if is_most and context.share(per_step_ns) >= MIN_SHARE else None


def _reduce_idle(context: LossContext) -> Remedy:
    if context.option("compile") is None:
        return Remedy((fact("inspect_gaps"),), only_finds_out=True)
    if any(rank.device == "gpu" for rank in context.run.ranks):
        return Remedy((fewer_launches(context),))
    return Remedy((fact("find_hotspot"),), only_finds_out=True)


def _part(context: LossContext, cause: Cause, name: str | None) -> IdlePart | None:
    """Return what is known of a cause of idle time over all ranks, what is named first; None without any of it."""
    # A trace without steps counts as one, start-up included, and is in no mean step.
    ranks = [rank for rank in context.run.ranks if any(step.step is not None for step in rank.steps)]
    if any(step.step is None for rank in ranks for step in rank.steps):
        return None
    idle = merge_idle(ranks)
    rows = sorted((row for row in idle.causes if row.cause == cause), key=lambda row: named_by(row) != name)
    total_ns = sum(row.total_ns for row in rows)
    return IdlePart(cause, total_ns / context.rank_steps, rows, context.rank_steps, idle) if rows else None


LOSSES: Final[Rules] = {
    **{name: partial(host_idle, number=n) for n, name in enumerate(("host", "host_too"))},
    "devices": idle_devices,
}
