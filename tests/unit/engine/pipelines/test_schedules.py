"""Schedules are recognised by the orders of actions that torch's own tables have."""

import re

import pytest

from perfkit.engine.pipelines.replay import Action
from perfkit.engine.pipelines.schedules import recognise_schedule

TABLES = {
    "interleaved": """
        0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
        1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
    """,
    "zero-bubble": """
        0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
        1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
    """,
    "zbv": """
        0F0 0F1 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 0I1 0W1
        1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 2I1 2W1 1I1 1W1
    """,
}
ONE_STAGE = {
    "zero-bubble": """
        0F0 0F1 0I0 0W0 0F2 0I1 0W1 0F3 0I2 0W2 0I3 0W3
        1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1F3 1I3 1W2 1W3
    """,
    "1f1b": """
        0F0 0F1 0B0 0F2 0B1 0B2
        1F0 1B0 1F1 1B1 1F2 1B2
    """,
    "gpipe": """
        0F0 0F1 0B0 0B1
        1F0 1F1 1B1 1B0
    """,
    "none": """
        0F0 0B0
        1F0 1B0
    """,
}

LONGER_AND_SHORTER = [
    """
        0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3
        1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3
    """,
    """
        0F0 0F1 5F0 5I0 5W0 5F1 5I1 5W1 0I0 0W0 0I1 0W1
        1F0 1F1 4F0 4F1 4I0 4W0 4I1 4W1 1I0 1W0 1I1 1W1
        2F0 3F0 2F1 3F1 3I0 3W0 2I0 2W0 3I1 3W1 2I1 2W1
    """,
]


def read(table: str) -> list[list[Action]]:
    parts = [[re.split("([FBIW])", one) for one in line.split()] for line in table.strip().splitlines()]
    return [[Action(int(stage), "FBIW".index(kind), int(batch)) for stage, kind, batch in line] for line in parts]


@pytest.mark.parametrize(("name", "table"), [*TABLES.items(), *ONE_STAGE.items()])
def test_known_schedules(name: str, table: str) -> None:
    assert recognise_schedule(read(table)) == name


@pytest.mark.parametrize("table", LONGER_AND_SHORTER)
def test_zbv_with_more_and_fewer_micro_batches_than_fill_it(table: str) -> None:
    assert recognise_schedule(read(table)) == "zbv"


@pytest.mark.parametrize("name", ["interleaved", "zero-bubble", "zbv"])
@pytest.mark.parametrize("rank", [0, 1])
def test_another_order_is_unknown(name: str, rank: int) -> None:
    orders = read(TABLES[name])
    orders[rank][0], orders[rank][1] = orders[rank][1], orders[rank][0]
    assert recognise_schedule(orders) is None


@pytest.mark.parametrize(
    "table",
    [
        # Breadth first: all forwards, stage by stage, then all backwards.
        "0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0\n1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0",
        # Halves of some backwards only.
        "0F0 0F1 0B0 0I1 0W1\n1F0 1B0 1F1 1I1 1W1",
        # Neighbouring stages on one rank.
        "0F0 1F0 1B0 0B0\n2F0 3F0 3B0 2B0",
        # In the shape of a V, but with few forwards ahead, which needs less memory.
        "0F0 3F0 3I0 3W0 0I0 0W0 0F1 3F1 3I1 3W1 0I1 0W1\n1F0 2F0 2I0 2W0 1I0 1W0 1F1 2F1 2I1 2W1 1I1 1W1",
        # A rank without one of its actions.
        "0F0 0F1 0B0 0B1\n1F0 1B0 1F1",
    ],
)
def test_schedules_that_are_none_of_the_known(table: str) -> None:
    assert recognise_schedule(read(table)) is None
