"""Stragglers in a mesh with a pipeline: the late rank is named at every position, and no stage for being heavier."""

import numpy as np
import pytest
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.late_causes import name_causes
from perfkit.engine.ranks.lateness import OwnTimes
from perfkit.engine.ranks.stages import comparable_parts, find_stages, level_stages
from perfkit.engine.ranks.stragglers import Stragglers, find_all_stragglers, find_one_off_stragglers
from perfkit.options.mesh import MeshLayout
from perfkit.records.common import CATEGORIES
from perfkit.records.cross_rank import OneOffStraggler
from perfkit.records.rank import PhaseStat, RankReport
from tests.support.reports.report_builders import make_rank, make_step

MS = 1_000_000
STEPS = 10
USUAL_MS, HEAVIER_MS, LATE_MS = 100, 30, 20
"""Each stage takes 30 ms longer than the one before."""
Cells = NDArray[np.int64]


def make_times(layout: MeshLayout, late_ms: dict[int, float] | Cells, noise_ms: float = 1.0, seed: int = 1) -> OwnTimes:
    """Return ranks whose stages differ; all but the late wait for it, at once or later in the step."""
    ranks = layout.world_size
    draw = np.random.default_rng(seed)
    delay = np.zeros((ranks, STEPS))
    if isinstance(late_ms, dict):
        for rank, ms in late_ms.items():
            delay[rank] = ms * MS
    else:
        delay = late_ms.astype(np.float64)
    stage = np.arange(ranks) * layout.size("pp") // ranks
    exposed = np.zeros((ranks, STEPS, len(CATEGORIES)))
    compute = (USUAL_MS + HEAVIER_MS * stage[:, None]) * MS + draw.normal(0, noise_ms * MS, (ranks, STEPS))
    exposed[:, :, CATEGORIES.index("compute")] = compute
    exposed[:, :, CATEGORIES.index("overhead")] = 5 * MS + delay
    own = exposed.sum(axis=2)
    exposed[:, :, CATEGORIES.index("communication")] = own.max(axis=0) + delay.max(axis=0) - own + MS
    return OwnTimes(list(range(ranks)), list(range(3, 3 + STEPS)), np.rint(exposed).astype(np.int64))


def found(layout: MeshLayout, times: OwnTimes) -> tuple[Stragglers, list[OneOffStraggler]]:
    stage_of = find_stages(layout.record(), [])
    late = find_all_stragglers(comparable_parts(times, stage_of))
    return late, find_one_off_stragglers(level_stages(times, stage_of), late)


MESH = MeshLayout(sizes={"pp": 2, "dp": 2, "tp": 2})


@pytest.mark.parametrize("rank", range(8))
def test_a_late_rank_is_named_at_every_position(rank: int) -> None:
    late, _ = found(MESH, make_times(MESH, {rank: LATE_MS}))
    (row,) = late.ranks
    assert (row.rank, row.category) == (rank, "overhead")
    assert row.lag_ns == pytest.approx(LATE_MS * MS, rel=0.1)


def test_heavier_stages_are_no_stragglers() -> None:
    """Compared with all others, every rank of the last stage would be."""
    for seed in range(20):
        late, once = found(MESH, make_times(MESH, {}, seed=seed))
        assert late.ranks == []
        assert once == []
    assert find_all_stragglers([make_times(MESH, {})]).ranks


@pytest.mark.parametrize("also", [(), (6,), (3,)])
def test_a_single_delay_is_one_ranks_only_if_no_other_is_as_late(also: tuple[int, ...]) -> None:
    """Ranks of the same or of another stage that hiccup in the same step: none alone delays the others."""
    cells = np.zeros((8, STEPS), np.int64)
    cells[[2, *also], 5] = 80 * MS
    late, once = found(MESH, make_times(MESH, cells))
    assert late.ranks == []
    assert [(one.step, sorted([one.rank, *one.with_ranks])) for one in once] == [(8, sorted([2, *also]))]


@pytest.mark.parametrize("sizes", [{"pp": 4}, {"pp": 2}])
def test_a_rank_alone_at_its_stage_is_only_compared_with_itself(sizes: dict[str, int]) -> None:
    layout = MeshLayout(sizes=sizes)
    assert found(layout, make_times(layout, {1: LATE_MS}))[0].ranks == []
    cells = np.zeros((layout.world_size, STEPS), np.int64)
    cells[1, 4] = 80 * MS
    late, once = found(layout, make_times(layout, cells))
    assert late.ranks == []
    assert [(one.rank, one.step) for one in once] == [(1, 7)]
    cells = np.zeros((layout.world_size, STEPS), np.int64)
    cells[1, ::3] = 50 * MS
    (row,) = found(layout, make_times(layout, cells))[0].ranks
    assert (row.rank, row.every) == (1, 3)


@pytest.mark.parametrize(
    "sizes",
    [pytest.param({"pp": 8, "dp": 64, "tp": 8}, marks=pytest.mark.slow), {"dp": 512, "tp": 2}],  # 5 s
)
def test_thousands_of_ranks(sizes: dict[str, int]) -> None:
    """In up to 4,096 ranks the late ones are named, wherever they are, and nobody else."""
    layout = MeshLayout(sizes=sizes)
    assert found(layout, make_times(layout, {}))[0].ranks == []
    for rank in np.linspace(0, layout.world_size - 1, 3).astype(int).tolist():
        late, _ = found(layout, make_times(layout, {rank: LATE_MS}, noise_ms=3))
        assert [row.rank for row in late.ranks] == [rank]


def test_late_ranks_at_two_stages_promise_no_more_than_one_stage_gives() -> None:
    late, _ = found(MESH, make_times(MESH, {1: LATE_MS, 6: LATE_MS / 2}))
    assert [row.rank for row in late.ranks] == [1, 6]


def key(members: str | None, dimension: str | None = "pp") -> CollectiveKey:
    return CollectiveKey("recv", members=members, dimension=dimension)


def test_stages_by_mesh_or_by_the_members_that_traces_list() -> None:
    assert find_stages(MESH.record(), []) == {rank: rank // 4 for rank in range(8)}
    listed = [key("[0, 6]"), key("[0, 2, 4, 6]"), key("[1, 3, 5, 7]"), key("[0, 1]", "tp"), key(None), key("[0, ...]")]
    assert find_stages([], listed) == {rank: rank // 2 for rank in range(8)}
    assert find_stages(MeshLayout(sizes={"dp": 4}).record(), []) == {}


def test_the_phase_is_compared_with_the_same_stage_only() -> None:
    def rank(number: int, forward_ms: int) -> RankReport:
        phases = [PhaseStat(name="perfkit.forward", count=2, total_ns=2 * forward_ms * MS, max_ns=MS)]
        return make_rank(number, [make_step(5), make_step(6)], phases=phases)

    ranks = [rank(0, 50), rank(1, 70), rank(2, 200), rank(3, 200)]
    late, _ = found(MeshLayout(sizes={"pp": 2, "tp": 2}), make_times(MeshLayout(sizes={"pp": 2, "tp": 2}), {1: 20}))
    stage_of = {0: 0, 1: 0, 2: 1, 3: 1}
    (row,) = name_causes(late.ranks, ranks, stage_of)
    assert row.phase == "forward"
    (row,) = name_causes(late.ranks, ranks, {})
    assert row.phase is None


def test_no_phase_is_named_if_two_are_longer_by_the_lag() -> None:
    """Figures of a real run in which rank 3 was held back before backward, and then waited in the optimizer's phase."""

    def rank(number: int, backward_ms: int, optimizer_ms: int) -> RankReport:
        spent = {"backward": backward_ms, "optimizer": optimizer_ms}
        phases = [PhaseStat(name=f"perfkit.{k}", count=2, total_ns=2 * ms * MS, max_ns=MS) for k, ms in spent.items()]
        return make_rank(number, [make_step(5), make_step(6)], phases=phases)

    ranks = [rank(0, 110, 6), rank(1, 102, 28), rank(2, 170, 134), rank(3, 170, 104)]
    late, _ = found(MESH, make_times(MESH, {3: 77}))
    (row,) = name_causes(late.ranks, ranks, {})
    assert row.phase is None
    (row,) = name_causes(late.ranks, [*ranks[:3], rank(3, 170, 28)], {})
    assert row.phase == "backward"
