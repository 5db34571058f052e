from perfkit.tools.collectives.config import messages


def test_messages_grow_by_the_factor_and_end_at_the_largest() -> None:
    assert [one.bytes for one in messages(8, 70, 2, 4, 1)] == [8, 16, 32, 64]


def test_divided_messages_have_whole_elements_for_every_rank_and_no_size_twice() -> None:
    found = messages(8, 64, 2, 4, 3)
    assert [(one.bytes, one.elements, one.per_rank) for one in found] == [
        (12, 3, 1),
        (24, 6, 2),
        (60, 15, 5),
    ]
