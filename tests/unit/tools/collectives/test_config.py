from typing import Any

import pytest

from perfkit.cli import main
from perfkit.errors import UsageError
from perfkit.tools.collectives.config import OPERATIONS, CollectivesConfig, in_place_forms, messages


def test_all_operators_are_measured_by_default_and_none_beside_pairs() -> None:
    assert CollectivesConfig().names == list(OPERATIONS)
    assert CollectivesConfig(pairs=True).names == []
    assert CollectivesConfig(pairs=True, operators="all_reduce").names == ["all_reduce"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"operators": "all_reduce,allgather"}, "allgather"),
        ({"dtype": "float8"}, "float8"),
        ({"min_size": "1M", "max_size": "1K"}, "--min-size"),
        ({"mesh": "xx=2"}, "--mesh"),
        ({"place": "in", "operators": "all_reduce"}, "--place in"),
        ({"place": "in", "operators": "all_gather,gather"}, "gather"),
        ({"pairs": True, "overlap": True}, "--overlap"),
        ({"pairs": True, "mesh": "dp=2"}, "--mesh"),
        ({"pairs": True, "concurrent": 2}, "--concurrent"),
        ({"overlap": True, "concurrent": 2}, "--concurrent"),
        ({"overlap": True, "max_size": "1K"}, "--overlap"),
        ({"overlap": True, "operators": "barrier"}, "--overlap"),
        ({"timeout": "5"}, "--timeout"),
        ({"device": "abacus"}, "--device"),
    ],
)
def test_what_does_not_work_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        CollectivesConfig(**options)


def test_a_mesh_must_have_the_ranks_and_a_dimension_of_two() -> None:
    CollectivesConfig(mesh="dp=2,tp=2").check_world(4)
    for mesh, ranks in (("dp=2,tp=2", 2), ("dp=1,tp=1", 1), (None, 1)):
        with pytest.raises(UsageError):
            CollectivesConfig(mesh=mesh).check_world(ranks)


def test_only_what_torch_can_do_both_ways_is_measured_both_ways() -> None:
    assert in_place_forms("all_gather", "both") == [False, True]
    assert in_place_forms("all_reduce", "out") == [True]
    assert in_place_forms("gather", "in") == [False]


def test_without_torch_it_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perfkit.cli.typer_app.find_spec", lambda _: None)
    assert main(["collectives", "-n", "2"]) == 1
    message = (
        "`perfkit collectives` needs torch, which is not installed: pip install 'perfkit[run]', or in a clone '.[run]'"
    )
    assert capsys.readouterr().err == f"perfkit: error: {message}\n"


def test_messages_grow_by_the_factor_and_end_at_the_largest() -> None:
    assert [one.bytes for one in messages(8, 70, 2, 4, 1)] == [8, 16, 32, 64]


def test_divided_messages_have_whole_elements_for_every_rank_and_no_size_twice() -> None:
    found = messages(8, 64, 2, 4, 3)
    assert [(one.bytes, one.elements, one.per_rank) for one in found] == [
        (12, 3, 1),
        (24, 6, 2),
        (60, 15, 5),
    ]
