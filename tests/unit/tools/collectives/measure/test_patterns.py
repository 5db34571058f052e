import pytest
import torch

from perfkit.tools.collectives.config import DTYPE_NAMES
from perfkit.tools.collectives.measure.calls import count_wrong, message, values_of_ranks

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", DTYPE_NAMES)
@pytest.mark.parametrize("ranks", [2, 3, 64, 700])
def test_sums_are_exact_in_every_type_in_any_order(name: str, ranks: int) -> None:
    dtype = getattr(torch, name)
    rows = values_of_ranks(ranks, dtype, summed=True)
    expected = rows.sum(0)
    for order in (range(ranks), reversed(range(ranks))):
        total = torch.zeros_like(expected, dtype=dtype)
        for rank in order:
            total += rows[rank].to(dtype)
        assert torch.equal(total.to(torch.int64), expected)


@pytest.mark.parametrize("name", DTYPE_NAMES)
@pytest.mark.parametrize("ranks", [2, 4, 100])
def test_a_missing_or_doubled_rank_changes_the_sum(name: str, ranks: int) -> None:
    dtype = getattr(torch, name)
    rows = values_of_ranks(ranks, dtype, summed=True)
    for rank in range(ranks):
        assert count_wrong(rows.sum(0) - rows[rank], rows.sum(0)) > 0


def test_a_message_continues_where_another_part_ends() -> None:
    period = values_of_ranks(2, torch.float32, summed=False)[1]
    whole = message(period, 1000, torch.float32, CPU)
    assert torch.equal(message(period, 300, torch.float32, CPU, 700), whole[700:])


def test_a_part_in_the_wrong_place_or_from_another_rank_shows() -> None:
    rows = values_of_ranks(4, torch.float32, summed=False)
    parts = [message(row, 256, torch.float32, CPU) for row in rows]
    assert all(count_wrong(parts[0], other) > 200 for other in parts[1:])
    assert count_wrong(parts[0].roll(1), parts[0]) > 200
    assert count_wrong(parts[0], parts[0]) == 0


def test_nan_is_wrong_even_where_it_is_expected_to_be_nothing_else() -> None:
    assert count_wrong(torch.tensor([float("nan"), 1.0]), torch.tensor([1.0, 1.0])) == 1
