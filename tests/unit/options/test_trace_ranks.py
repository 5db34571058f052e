"""`--trace-ranks`: which ranks leave light traces, and what is refused."""

import pytest

from perfkit.errors import UsageError
from perfkit.options.run import RunConfig
from perfkit.options.script import ScriptConfig
from perfkit.options.trace_ranks import is_light

MESH = {"pp": 2, "dp": 2, "tp": 2}


@pytest.mark.parametrize(
    ("text", "full"),
    [(None, range(8)), ("0,7", (0, 7)), ("per-host", (0, 4)), ("per-stage", (0, 4)), ("3", (3,))],
)
def test_the_other_ranks_leave_light_traces(text: str | None, full: tuple[int, ...]) -> None:
    light = [is_light(text, "time", rank=r, local_rank=r % 4, mesh=MESH) for r in range(8)]
    assert [rank for rank in range(8) if not light[rank]] == list(full)


def test_a_stage_has_one_rank_that_records_fully_wherever_its_dimension_is() -> None:
    mesh = {"dp": 2, "pp": 4}
    light = [is_light("per-stage", "why", rank=r, local_rank=r, mesh=mesh) for r in range(8)]
    assert [rank for rank in range(8) if not light[rank]] == [0, 1, 2, 3]


def test_all_ranks_are_light_with_detail_light() -> None:
    assert is_light(None, "light", rank=0, local_rank=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trace_ranks": "0;1"}, "write ranks as 0,7, or per-host or per-stage"),
        ({"trace_ranks": ""}, "write ranks as 0,7"),
        ({"trace_ranks": "0", "detail": "light"}, "no effect with --detail light"),
        ({"trace_ranks": "0", "profile": False}, "--trace-ranks has no effect with --no-profile"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RunConfig(**options)  # type: ignore[arg-type]


def test_ranks_and_stages_that_a_run_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match="this run has ranks 0 to 3"):
        RunConfig(trace_ranks="4").check_world(4)
    with pytest.raises(UsageError, match="needs a pipeline of a workload"):
        RunConfig(trace_ranks="per-stage").check_world(4)
    RunConfig(trace_ranks="per-stage", mesh="pp=2,dp=2").check_world(4)
    with pytest.raises(UsageError, match="needs a pipeline of a workload"):
        ScriptConfig(trace_ranks="per-stage")
