"""No series mixes two configurations, whatever the runs."""

from hypothesis import given
from hypothesis import strategies as st

from perfkit.options.identity import key
from perfkit.options.identity import settings as setting_of
from perfkit.records.run import RunReport
from perfkit.subjects.scaling.series import groups, repeats, runs_of
from tests.support.reports.scaling_builders import make_hosts, make_scaled

MARKS = {"timeout": "1m", "steps": 9}


@st.composite
def some_runs(draw: st.DrawFn) -> list[RunReport]:
    count = draw(st.integers(0, 12))
    return [
        make_scaled(
            size := draw(st.sampled_from([1, 2, 3, 4, 8])),
            draw(st.floats(1, 1000)),
            batch=draw(st.sampled_from([8, 16, 24, 32])),
            source=draw(st.sampled_from(["memory", "hdf5"])),
            name=f"run{number}",
            config={"compile": draw(st.booleans()), **(MARKS if draw(st.booleans()) else {})},
            hosts=make_hosts(size, a_host=draw(st.sampled_from([1, 2, 8]))),
            state=draw(st.sampled_from(["completed", "completed", "failed"])),
            ranks=[],
        )
        for number in range(count)
    ]


@given(some_runs())
def test_a_series_is_one_configuration(runs: list[RunReport]) -> None:
    found = groups(runs)
    for group in found:
        mine = runs_of(group)
        assert len({key(setting_of(run) or {}) for run in mine}) == 1
        assert all(run.state == "completed" for run in mine)
        assert all(run.state == "failed" for run in group.failed)
        ranks = [run.world_size if group.kind == "strong" else 1 for run in mine]
        assert {(run.batch_size or 0) * by for run, by in zip(mine, ranks, strict=True)} == {group.batch_size}
        assert list(group.points) == sorted(group.points)
        assert len(group.points) >= 2
        for size, several in group.points.items():
            assert {run.world_size for run in several} == {size}
            assert len({len(run.hosts) for run in several}) == 1
    for kind in ("strong", "weak"):
        names = [run.run for group in found if group.kind == kind for run in runs_of(group)]
        assert len(names) == len(set(names))


@given(some_runs())
def test_every_run_is_a_repeat_of_something_once(runs: list[RunReport]) -> None:
    assert sorted(run.run for alike in repeats(runs) for run in alike) == sorted(run.run for run in runs)
