"""Group runs into scaling series: equal in everything but world size and, for strong scaling, the batch per rank."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from perfkit.options.identity import Settings, differing, key, settings
from perfkit.records.aggregate import common_kind, steps_ns
from perfkit.records.common import Observation
from perfkit.records.facts import statement
from perfkit.records.run import RunReport
from perfkit.records.sweep import ScalingKind
from perfkit.subjects.scaling.step_time import mesh_of_a_replica, replicas

FEWEST_SIZES: Final = 2
"""Fewest world sizes of a series."""


class Placed(NamedTuple):
    """A run with its settings and batch size."""

    run: RunReport
    setting: Settings
    batch_size: int
    """Samples per rank and step, or per group of ranks that share them."""

    @property
    def of_series(self) -> Settings:
        """The settings without the number of data-parallel ranks, in which the points of a series differ."""
        return self.setting | ({"mesh": mesh_of_a_replica(self.run)} if "mesh" in self.setting else {})

    @property
    def measured(self) -> bool:
        """Whether it has a step time."""
        return common_kind([self.run]) is not None


class Group(NamedTuple):
    """The runs of one series."""

    kind: ScalingKind
    setting: Settings
    batch_size: int
    """Strong: of all ranks; weak: of each."""
    points: dict[int, list[RunReport]]
    """Repeats by world size, in its order."""
    failed: list[RunReport]


def place(run: RunReport) -> Placed | None:
    """Return `run` with its settings and batch size; None if either is unknown."""
    setting = settings(run)
    batch = run.batch_size or _configured_batch(run)
    # Both are numbers in an untrusted file.
    if setting is None or batch is None or batch < 1 or run.world_size < 1:
        return None
    return Placed(run, setting, batch)


def _configured_batch(run: RunReport) -> int | None:
    """Return the configured batch size: a run that failed early may not have recorded it."""
    batch, accumulate = ((run.config or {}).get(name) for name in ("batch_size", "accumulate"))
    return batch * accumulate if isinstance(batch, int) and isinstance(accumulate, int) else None


def groups(runs: Sequence[RunReport]) -> list[Group]:
    """Return the series among `runs`; a run may belong to a strong and to a weak one."""
    placed = [member for run in runs if (member := place(run))]
    by_setting: dict[frozenset[tuple[str, str]], list[Placed]] = defaultdict(list)
    # The devices of a run that failed early are unknown: it joins the series that all else fits.
    for member in placed:
        if member.measured:
            by_setting[key(member.of_series)].append(member)
    lost = [member for member in placed if not member.measured]
    return [group for members in by_setting.values() for group in _of_setting(members, lost)]


def _of_setting(members: list[Placed], lost: list[Placed]) -> Iterator[Group]:
    setting = members[0].of_series
    same_setting = [
        member for member in lost if key(member.of_series, ("device_name",)) == key(setting, ("device_name",))
    ]
    batches: tuple[tuple[ScalingKind, Callable[[Placed], int]], ...] = (
        ("strong", lambda member: member.batch_size * replicas(member.run)),
        ("weak", lambda member: member.batch_size),
    )
    for kind, batch in batches:
        for size in sorted({batch(member) for member in members}):
            same_batch = [member.run for member in members if batch(member) == size]
            failed = [member.run for member in same_setting if batch(member) == size]
            for layout in _layouts(same_batch):
                points = {p: [run for run in layout if run.world_size == p] for p in _sizes(layout)}
                if len(points) >= FEWEST_SIZES:
                    yield Group(kind, setting, size, points, failed)


def _sizes(runs: Sequence[RunReport]) -> list[int]:
    return sorted({run.world_size for run in runs})


def _layouts(runs: list[RunReport]) -> list[list[RunReport]]:
    """Split runs by ranks per host, if runs of one world size use different numbers of hosts."""
    hosts: dict[int, set[int]] = defaultdict(set)
    for run in runs:
        hosts[run.world_size].add(len(run.hosts))
    if all(len(counts) == 1 for counts in hosts.values()):
        return [runs]
    by_layout: dict[int, list[RunReport]] = defaultdict(list)
    for run in runs:
        by_layout[max((host.ranks for host in run.hosts), default=0)].append(run)
    return list(by_layout.values())


def why_no_series(runs: Sequence[RunReport]) -> Observation | None:
    """Return why runs on different numbers of ranks are no series; None if there is one, or all have as many ranks."""
    sizes = sorted({run.world_size for run in runs})
    if len(sizes) < FEWEST_SIZES or any(measurable(group) for group in groups(runs)):
        return None
    if foreign := [run.run for run in runs if run.config is None]:
        return Observation("no_scaling_series", {"sizes": sizes, "run": foreign[0]}, "manifest")
    if untimed := [run for run in runs if common_kind([run]) is None]:
        values = {"sizes": sizes, "run": untimed[0].run, "reason": failure_reason(untimed[0])}
        return Observation("no_scaling_series", values, "steps")
    members = [member for run in runs if (member := place(run))]
    if unplaced := {run.run for run in runs} - {member.run.run for member in members}:
        return Observation("no_scaling_series", {"sizes": sizes, "run": min(unplaced)}, "samples")
    if options := differing([member.of_series for member in members]):
        values = {name: list(dict.fromkeys(one.of_series.get(name, "none") for one in members)) for name in options}
        return Observation("no_scaling_series", {"sizes": sizes, "options": values}, "options")
    batches = {member.run.world_size: member.batch_size for member in members}
    return Observation("no_scaling_series", {"sizes": sizes, "batches": batches}, "batch")


def runs_of(group: Group) -> list[RunReport]:
    """Return the runs of all points."""
    return [run for runs in group.points.values() for run in runs]


def measurable(group: Group) -> bool:
    """Return whether all points have steps of one kind, so that they can be compared."""
    return common_kind(runs_of(group)) is not None


def failure_reason(run: RunReport) -> str:
    """Return why a run has no step time."""
    message = next(
        (finding.message for finding in run.findings if finding.code in ("run_failed", "run_unfinished")), None
    )
    if message is not None:
        return message
    if run.state != "completed":
        return statement("state", state=run.state)
    timed = steps_ns(run, "plain")
    return statement("steps_not_comparable" if timed else "no_warm_step")


def repeats(runs: Sequence[RunReport]) -> list[list[RunReport]]:
    """Group repeats: runs of one configuration, world size and batch; a run with unknown settings stays alone."""
    by_setting: dict[object, list[RunReport]] = defaultdict(list)
    for number, run in enumerate(runs):
        member = place(run)
        where = (key(member.setting), run.world_size, len(run.hosts), member.batch_size) if member else number
        by_setting[where].append(run)
    return list(by_setting.values())
