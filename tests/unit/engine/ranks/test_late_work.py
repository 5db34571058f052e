"""Why a rank computes or launches for longer: more work, the same more slowly, on all kernels or on some."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfkit.engine.ranks.late_causes import name_causes
from perfkit.engine.ranks.late_work import Work, _split, name_hosts
from perfkit.records.cross_rank import LateWork, Straggler, same_work
from perfkit.records.per_rank.idle import LaunchStats
from perfkit.records.rank import OTHER_NAMES, RankReport
from tests.support.reports.report_builders import MS, make_operator, make_rank, make_step
from tests.unit.pipeline.test_insights import make_straggler

STEPS = 4
Row = tuple[float, float, int | None]
"""Runs per step, ms per step, and size of a run."""
KERNELS: Mapping[str, Row] = {
    "sm90_xmma_gemm_bf16_128x128": (40, 30, 256),
    "flash_fwd_kernel": (8, 12, 64),
    "vectorized_layer_norm_kernel": (16, 6, 512),
    "vectorized_elementwise_kernel<4, AddFunctor>": (60, 8, 1024),
    "multi_tensor_apply_kernel<AdamFunctor>": (4, 3, 300),
    "own_kernel": (5, 1, 32),
}


def rank(number: int, rows: Mapping[str, Row], device: str = "gpu", host: str = "node0") -> RankReport:
    operators = [
        make_operator(
            name,
            count=round(STEPS * runs),
            total_ns=round(STEPS * ms * MS),
            size=None if size is None else round(STEPS * runs) * size,
        )
        for name, (runs, ms, size) in rows.items()
    ]
    return make_rank(number, [make_step(step) for step in range(STEPS)], operators=operators, device=device, host=host)


def why(late: Mapping[str, Row], usual: Mapping[str, Row] = KERNELS, device: str = "gpu") -> LateWork | None:
    """Return why rank 1 of three is late by all that its work takes longer."""
    lag_ns = round(MS * (sum(row[1] for row in late.values()) - sum(row[1] for row in usual.values())))
    row = make_straggler(1, category="compute", lag_ns=lag_ns)
    ranks = [rank(number, late if number == 1 else usual, device) for number in range(3)]
    (found,) = name_causes([row], ranks, {})
    return found.work


def changed(factor: float, what: str, *names: str, of: Mapping[str, Row] = KERNELS) -> dict[str, Row]:
    """Return the kernels, those whose names begin so with more runs, larger or slower."""
    found: dict[str, Row] = {}
    for name, (runs, ms, size) in of.items():
        by = factor if not names or name.startswith(names) else 1.0
        assert size is not None
        found[name] = (
            runs * by if what == "runs" else runs,
            ms * by,
            round(size * by) if what == "size" else size,
        )
    return found


FACTORS = st.sampled_from([1.08, 1.25, 1.5, 2.0, 3.0])
MEMORY_BOUND = ("vectorized", "multi_tensor")
COMPUTE_BOUND = ("sm90", "flash")


@given(own=st.tuples(*[st.floats(1, 1e6)] * 3), usual=st.tuples(*[st.floats(1, 1e6)] * 3), is_sized=st.booleans())
def test_the_factors_explain_the_longer_time_exactly(
    own: tuple[float, float, float], usual: tuple[float, float, float], is_sized: bool
) -> None:
    here, there = (Work(runs, size if is_sized else None, ns) for runs, size, ns in (own, usual))
    part = _split(here, there)
    whole = part.runs + part.size + part.pace + part.time
    assert whole == pytest.approx(here.ns - there.ns, rel=1e-6, abs=1e-3)
    assert bool(part.time) <= (not is_sized)


@given(FACTORS, st.lists(st.floats(0.99, 1.01), min_size=len(KERNELS), max_size=len(KERNELS)))
def test_every_kernel_slower_is_the_clock(factor: float, noise: list[float]) -> None:
    late = {
        name: (runs, ms * by, size)
        for (name, (runs, ms, size)), by in zip(changed(factor, "pace").items(), noise, strict=True)
    }
    found = why(late)
    assert found is not None
    assert (found.factor, found.of) == ("pace", "all")
    assert found.times == pytest.approx(factor, rel=0.02)


@given(FACTORS)
def test_a_group_of_kernels_that_is_slower_is_named(factor: float) -> None:
    for names, of in ((MEMORY_BOUND, "memory_bound"), (COMPUTE_BOUND, "compute_bound"), (("flash",), "few")):
        found = why(changed(factor, "pace", *names))
        assert found is not None
        assert (found.factor, found.of) == ("pace", of)
        assert found.times == pytest.approx(factor, rel=1e-3)
        assert found.name == ("flash_fwd_kernel" if of == "few" else None)


@given(FACTORS)
def test_larger_grids_are_more_work(factor: float) -> None:
    found = why(changed(factor, "size", "sm90", "flash", "vectorized", "own"))  # parameters are as many
    assert found is not None
    assert (found.factor, found.of) == ("size", "all")
    found = why(changed(factor, "size", "flash"))
    assert found is not None
    assert (found.factor, found.of, found.name) == ("size", "few", "flash_fwd_kernel")
    assert found.times == pytest.approx(factor, rel=0.02)


@given(FACTORS)
def test_more_runs_are_more_work(factor: float) -> None:
    found = why(changed(factor, "runs"))
    assert found is not None
    assert (found.factor, found.of) == ("runs", "all")
    found = why(changed(factor, "runs", "flash"))
    assert found is not None
    assert (found.factor, found.name) == ("runs", "flash_fwd_kernel")


def test_passes_of_one_operator_are_named_together() -> None:
    usual: dict[str, Row] = {"grouped_gemm_forward": (4, 10, 8), "grouped_gemm_dgrad": (4, 10, 8), **KERNELS}
    for what in ("size", "pace"):
        found = why(changed(3, what, "grouped", of=usual), usual)
        assert found is not None
        assert (found.of, found.name) == ("few", "grouped_gemm_*")
        assert found.times == pytest.approx(3)


def test_two_that_share_no_name_are_not_named_together() -> None:
    usual: dict[str, Row] = {"one": (4, 10, 8), "other": (4, 10, 8), **KERNELS}
    found = why(changed(3, "pace", "one", "other", of=usual), usual)
    assert found is None or found.name is None


def test_of_kernels_without_grids_it_is_not_known_which() -> None:
    usual: dict[str, Row] = {name: (runs, ms, None) for name, (runs, ms, _) in KERNELS.items()}
    late: dict[str, Row] = {name: (runs, 1.25 * ms, None) for name, (runs, ms, _) in KERNELS.items()}
    found = why(late, usual)
    assert found is not None
    assert (found.factor, found.of, round(found.times, 3)) == ("time", "all", 1.25)


def test_slower_and_larger_is_neither() -> None:
    larger = changed(1.3, "size")
    found = why(changed(1.5, "pace", of=larger))
    assert found is not None
    assert found.factor == "time"


def test_persistent_kernels_do_not_hide_larger_inputs() -> None:
    """Their grids are those of the device: what the others work on tells."""
    late = changed(1.3, "size", "vectorized", "flash", "own") | changed(
        1.3, "pace", "sm90", of={"sm90_xmma_gemm_bf16_128x128": (40, 30, 256)}
    )
    found = why(late)
    assert found is not None
    assert found.factor in ("size", "time")


def test_libraries_choose_other_kernels_for_other_sizes() -> None:
    late = changed(1.3, "size", "flash", "vectorized", "own")
    runs, ms, _ = late.pop("sm90_xmma_gemm_bf16_128x128")
    late["sm90_xmma_gemm_bf16_256x128"] = (runs, 1.3 * ms, 100)  # fewer, larger blocks
    found = why(late)
    assert found is not None
    assert found.factor == "size"
    slower = changed(1.3, "pace")
    slower["sm90_xmma_gemm_bf16_256x128"] = slower.pop("sm90_xmma_gemm_bf16_128x128")
    found = why(slower)
    assert found is None or found.factor == "time"  # of the largest part it is not known


def test_names_that_are_not_listed_are_not_blamed() -> None:
    usual: dict[str, Row] = {OTHER_NAMES: (100, 30, None), **KERNELS}
    found = why(usual | {OTHER_NAMES: (100, 60, None)}, usual)
    assert found is None or found.name is None


def test_operators_are_compared_by_their_inputs() -> None:
    usual: dict[str, Row] = {"aten::addmm": (12, 40, 4096), "aten::gelu": (6, 10, 2048), "aten::sum": (2, 3, 999)}
    slow, large = changed(1.25, "pace", of=usual), changed(1.25, "size", of=usual)
    for late, factor in ((slow, "pace"), (large, "size")):
        found = why(late, usual, "cpu")
        assert found is not None
        assert (found.factor, found.of, found.on_device) == (factor, "all", False)


@pytest.mark.parametrize("change", [{"category": "memcpy"}, {"every": 2}, {"steps_late": 3}, {"lag_ns": 9 * MS}])
def test_nothing_is_said_where_the_work_does_not_explain_the_lag(change: dict[str, Any]) -> None:
    row = make_straggler(1, **({"category": "compute", "lag_ns": 15 * MS} | change))
    ranks = [rank(0, KERNELS), rank(1, changed(1.25, "pace"))]
    assert name_causes([row], ranks, {})[0].work is None
    assert name_causes([make_straggler(1, category="compute", lag_ns=15 * MS)], ranks, {})[0].work is not None


def test_ranks_of_other_stages_are_not_compared() -> None:
    row = make_straggler(1, category="compute", lag_ns=15 * MS)
    ranks = [rank(0, KERNELS), rank(1, changed(1.25, "pace")), rank(2, changed(9, "runs"))]
    (found,) = name_causes([row], ranks, {0: 0, 1: 0, 2: 1})
    assert found.work is not None
    assert found.work.times == pytest.approx(1.25)


# ---- launches ----------------------------------------------------------------------------------------------------


def launching(number: int, count: int, call_us: int, mean_us: int | None = None) -> RankReport:
    zeros = dict.fromkeys(LaunchStats.__struct_fields__, 0)
    call_ns = count * STEPS * (mean_us or call_us) * 1000
    stats = LaunchStats(**(zeros | {"count": count * STEPS, "call_ns": call_ns, "call_median_ns": call_us * 1000}))
    return replace(rank(number, KERNELS), launches=stats)


@pytest.mark.parametrize(
    ("count", "call_us", "expected"),
    [
        (1000, 15, ("pace", 3.0)),
        (1000, 50, ("pace", 10.0)),
        (3000, 5, ("runs", 3.0)),
        (2000, 10, None),  # both, half each
        (1000, 5, None),
        (1010, 6, None),  # 1 of 9 ms
    ],
)
def test_launches_are_more_or_slower(count: int, call_us: int, expected: tuple[str, float] | None) -> None:
    row = make_straggler(1, category="overhead", lag_ns=9 * MS)
    others = [launching(number, 1000, 5) for number in (0, 2)]
    # Of a rank that waits, launches wait for room in the queue: their mean is no measure.
    others.append(launching(3, 1000, 5, mean_us=40))
    (found,) = name_causes([row], [*others, launching(1, count, call_us)], {})
    if expected is None:
        assert found.work is None
        return
    assert found.work is not None
    assert found.work.of == "launches"
    assert found.work.factor == expected[0]
    assert found.work.times == pytest.approx(expected[1])


# ---- several ranks -----------------------------------------------------------------------------------------------


def late_ranks(*numbers: int, **changes: Any) -> list[Straggler]:
    return [make_straggler(number, **({"category": "compute"} | changes)) for number in numbers]


def test_a_host_is_named_if_it_is_late_as_a_whole() -> None:
    ranks = [rank(number, KERNELS, host=f"node{number // 4}") for number in range(12)]
    assert {row.host for row in name_hosts(late_ranks(4, 5, 6, 7), ranks)} == {"node1"}
    mixed = [*late_ranks(4, 5, 6), *late_ranks(7, category="overhead")]
    for rows in (late_ranks(4, 5, 6), late_ranks(4, 5, 6, 7, 8), late_ranks(*range(12)), mixed, late_ranks(4), []):
        assert {row.host for row in name_hosts(rows, ranks)} <= {None}
    alone = [rank(number, KERNELS, host=f"node{number}") for number in range(3)]
    assert name_hosts(late_ranks(1), alone)[0].host is None  # the rank says as much
    assert {row.host for row in name_hosts(late_ranks(0, 1), ranks[:2])} == {None}  # nothing is on time


def test_of_several_late_ranks_only_a_common_reason_is_told() -> None:
    one = LateWork(factor="pace", of="all", on_device=True, own=110.0, usual=100.0)
    rows = [replace(row, work=replace(one, own=own)) for row, own in zip(late_ranks(1, 2), (111.0, 113.0), strict=True)]
    found = same_work(rows)
    assert found is not None
    assert found.times == pytest.approx(1.12)
    assert same_work([rows[0], replace(rows[1], work=replace(one, own=150.0))]) is None
    assert same_work([rows[0], replace(rows[1], work=replace(one, of="memory_bound"))]) is None
    assert same_work([rows[0], replace(rows[1], work=None)]) is None
    assert same_work([]) is None
    assert math.isclose(replace(one, usual=0.0).times, 0.0)
