"""What is shown of a run: derived from the newest steps of its ranks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.statistics.bootstrap import Floats
from perfkit.engine.ranks.lateness import excess
from perfkit.record.on_demand.mailbox import DIED, has_died
from perfkit.records.manifest import RunManifest
from perfkit.records.monitor import LOSS_GIVEN
from perfkit.report.wording.findings import word, word_all
from perfkit.storage.step_log.follow import Records, RunFollower
from perfkit.subjects.monitor.course import plain_steps
from perfkit.subjects.monitor.summarize import (
    EARLY_END,
    LogFacts,
    find_bad_losses,
    monitor_findings,
    not_a_number,
    summarize,
)
from perfkit.subjects.monitor.table import PARTS, StepTable, Values, align, over_ranks, own_ns, rank_steps
from perfkit.subjects.monitor.tables import uneven_sentence

RECENT: Final = 32
"""Steps of the recent figures."""
HISTORY: Final = 512
"""Steps of the history of step times."""
_SILENT_STEPS: Final = 10
_SILENT_S: Final = 10.0
"""A run is silent after so many times its step time, and so long."""

_TRAINING: Final = "running"
KILLED: Final = f"over: {DIED}"

_MOST: Final = 1 << 53
"""A manifest's numbers of steps and samples are below, or not believed."""


class RankNow(NamedTuple):
    """The state of a rank. Times are means of the recent steps; NaN: unknown."""

    rank: int
    step: int
    lag_ns: float
    """Median excess of its own time over the median of the others."""
    step_ns: float
    data_ns: float
    collective_ns: float
    allocated_bytes: float
    rss_bytes: float
    behind: bool
    """Whether its newest step is far behind that of the others: it does not write any more."""


@dataclass(frozen=True, slots=True)
class RunView:
    """What is shown of a run."""

    name: str
    state: str
    is_fault: bool = False
    """Whether the state is one to worry about."""
    is_over: bool = False
    """Whether it has ended."""
    failure: str = ""
    """Why it failed; empty if it has not, or that is unknown."""
    world_size: int = 0
    ranks: list[RankNow] = field(default_factory=list)
    step: int | None = None
    """Newest step that has ended on any rank."""
    total_steps: int | None = None
    step_ns: float = float("nan")
    """Mean of the recent steps' longest over ranks."""
    history_ns: Floats = field(default_factory=lambda: np.zeros(0))
    """Longest over ranks of the newest steps."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Share of the recent step time by part, and of the rest: a cold step would outweigh all others."""
    samples_per_s: float | None = None
    loss: float | None = None
    allocated_bytes: float = float("nan")
    rss_bytes: float = float("nan")
    host_busy: float = float("nan")
    device_busy: float = float("nan")
    lag_known: bool = False
    events: list[str] = field(default_factory=list)
    """What could not be read, and what happened in the steps that are kept."""
    single_steps: int = 0
    """Newest steps that are kept each by itself: of rolled-up ones, no single one is known to be usual."""
    notes: list[str] = field(default_factory=list)
    """What follows its end, and how the run before it ended."""

    @property
    def is_training(self) -> bool:
        """Whether its steps follow one another."""
        return self.state == _TRAINING

    @property
    def remaining_ns(self) -> float | None:
        """Return the time to the last step at the recent rate; None if the number of steps is unknown."""
        if self.total_steps is None or self.step is None or not self.step_ns > 0:
            return None
        return max(0, self.total_steps - self.step - 1) * self.step_ns


def view(run: RunFollower, events: list[str]) -> RunView:
    """Return what is to be shown of a run; `events` is what `find_events` last returned."""
    logs = {rank: log.records for rank, log in run.logs.items() if len(log.records)}
    if not logs:
        problem = run.problem or next(iter(run.unread()), _without_logs(run.manifest))
        return RunView(run.name, problem, is_fault=True, is_over=_is_over(run.manifest))
    table = align({rank: rank_steps(records[-HISTORY:], run.logs[rank].device) for rank, records in logs.items()})
    assert table is not None  # noqa: S101  there are records
    end = _end_of_common_steps(table)
    recent = table.between(slice(max(0, end - RECENT), end))
    longest = over_ranks(table.wall_ns).astype(np.float64)
    step_ns = _mean(longest[-RECENT:])
    own = own_ns(recent)
    newest = {rank: int(records["step"][-1] + records["steps"][-1]) - 1 for rank, records in logs.items()}
    state, is_fault = _state(run, step_ns)
    return RunView(
        name=run.name,
        state=state,
        is_fault=is_fault,
        is_over=state == KILLED or _is_over(run.manifest),
        failure=_failure(run.manifest),
        world_size=max(run.world_size, len(logs)),
        ranks=_ranks(logs, newest, recent, None if own is None else excess(own)),
        step=max(newest.values()),
        total_steps=_total_steps(run.manifest),
        step_ns=step_ns,
        history_ns=longest[~np.isnan(longest)],
        parts=_parts(plain_steps(recent)),
        samples_per_s=_rate(run.manifest, run.world_size, step_ns),
        loss=_loss(logs),
        allocated_bytes=_newest(logs, "allocated_bytes"),
        rss_bytes=_newest(logs, "rss_bytes"),
        host_busy=_newest(logs, "host_busy"),
        device_busy=_newest(logs, "device_busy"),
        lag_known=own is not None,
        events=[*run.unread(), *events],
        single_steps=max(int((records["steps"] == 1).sum()) for records in logs.values()),
    )


def _without_logs(manifest: RunManifest | None) -> str:
    """Return what a run without logs is: one that has ended gets none any more."""
    if manifest is not None and _is_over(manifest):
        return f"{manifest.state} without --monitor"
    return "waiting for logs of the monitor (--monitor)"


def _is_over(manifest: RunManifest | None) -> bool:
    return manifest is not None and manifest.state in {"completed", "failed"}


def _end_of_common_steps(table: StepTable) -> int:
    """Return the number of steps up to the last that half of the ranks have: logs are read one after another."""
    known = ~np.isnan(table.columns["step_ns"])
    enough = np.flatnonzero(2 * known.sum(axis=0) >= known.any(axis=1).sum())
    return int(enough[-1]) + 1 if len(enough) else known.shape[1]


def find_events(run: RunFollower) -> list[str]:
    """Return what happened in the steps that are kept, in sentences: as the report says it of the whole run."""
    logs = {rank: rank_steps(log.records, log.device) for rank, log in run.logs.items() if len(log.records)}
    table = align(logs)
    if table is None:
        return []
    summary = summarize(table, LogFacts(0, 0, None, None, None, None))
    found = [
        one.message for one in word_all(monitor_findings(summary)) if one.code != EARLY_END
    ]  # these ranks are silent
    return [*_bad_losses(run), *(found or filter(None, [uneven_sentence(summary)]))]


def _bad_losses(run: RunFollower) -> Iterator[str]:
    logs = {rank: log.records for rank, log in run.logs.items() if len(log.records)}
    found = {rank: bad for rank, records in logs.items() if (bad := find_bad_losses(records)) is not None}
    if found:
        yield word(not_a_number(found, len(logs))).message


def _ranks(
    logs: Mapping[int, Records], newest: Mapping[int, int], recent: StepTable, excess_ns: Values | None
) -> list[RankNow]:
    lag = np.full(len(recent.ranks), np.nan) if excess_ns is None else np.median(excess_ns, axis=1)
    behind = int(np.median(list(newest.values()))) - RECENT
    found = []
    for row, rank in enumerate(recent.ranks):
        last = logs[rank][-1]
        step, data, collectives = (_mean(recent.columns[name][row]) for name in ("step_ns", "data_ns", "collective_ns"))
        found.append(
            RankNow(
                rank=rank,
                step=newest[rank],
                lag_ns=float(lag[row]),
                step_ns=step,
                data_ns=data,
                collective_ns=collectives,
                allocated_bytes=_positive(last["allocated_bytes"]),
                rss_bytes=_positive(last["rss_bytes"]),
                behind=newest[rank] < behind,
            )
        )
    return found


def _positive(value: float) -> float:
    return float(value) if value >= 0 else float("nan")


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _state(run: RunFollower, step_ns: float) -> tuple[str, bool]:
    """Return what a run does, and whether that is a reason to worry."""
    state, silent = run.manifest.state if run.manifest else None, run.silent_s() or 0.0
    if state == "failed":
        return "failed", True
    if state == "completed":
        return "completed", False
    if silent > max(_SILENT_S, _SILENT_STEPS * step_ns / 1e9):
        return KILLED if has_died(run.folder) else f"no step for {_spell(silent)}", True
    return _TRAINING, False


def _failure(manifest: RunManifest | None) -> str:
    failure = manifest.failure if manifest is not None and manifest.state == "failed" else None
    return f"rank {failure.rank}: {failure.message}" if failure else ""


def _spell(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _total_steps(manifest: RunManifest | None) -> int | None:
    steps = manifest.config.get("steps") if manifest else None
    return steps if isinstance(steps, int) and not isinstance(steps, bool) and 0 < steps < _MOST else None


def _rate(manifest: RunManifest | None, world_size: int, step_ns: float) -> float | None:
    """Return samples per second of all ranks; None if the batch is unknown, or not all ranks have their own data."""
    if manifest is None or manifest.batch_size is None or not step_ns > 0 or len(manifest.mesh) > 1:
        return None
    if not 0 < manifest.batch_size < _MOST:
        return None
    return manifest.batch_size * world_size / (step_ns / 1e9)


def _loss(logs: Mapping[int, Records]) -> float | None:
    """Return the newest loss of the lowest rank that has one."""
    for records in logs.values():
        given = records["loss"][(records["flags"] & LOSS_GIVEN) != 0]
        if len(given):
            return float(given[-1])
    return None


def _newest(logs: Mapping[int, Records], column: str) -> float:
    """Return the highest of the ranks' newest values; NaN if unknown."""
    values = np.array([records[column][-1] for records in logs.values()], np.float64)
    known = values[values >= 0]
    return float(known.max()) if len(known) else float("nan")


def _parts(recent: StepTable) -> dict[str, float]:
    """Return the share of each part of the step over ranks and steps; empty if nothing is known."""
    wall = np.nansum(recent.wall_ns, dtype=np.float64)
    sums = {part: float(np.nansum(recent.columns[column], dtype=np.float64)) for part, column in PARTS.items()}
    collectives = float(np.nansum(recent.columns["collective_ns"], dtype=np.float64))
    if not wall:
        return {}
    # Collectives are waited for in other parts, first of all in backward passes.
    left = collectives
    for part in ("backward", "optimizer", "forward"):
        taken = min(left, sums[part])
        sums[part] -= taken
        left -= taken
    sums["collectives"] = collectives
    shares = {part: value / wall for part, value in sums.items() if value > 0}
    return shares | {"other": max(0.0, 1 - sum(shares.values()))}
