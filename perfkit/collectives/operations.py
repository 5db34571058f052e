"""The operators that are measured: a table, without torch."""

from typing import Final, NamedTuple


class Operation(NamedTuple):
    """How an operator uses its memory, and what its results are."""

    operator: str
    """As in traces, for the factors of bandwidth."""
    divided: bool
    """Whether its size is the total of equal parts of the ranks."""
    in_place: bool
    """Whether input and output can share memory."""
    out_of_place: bool = True
    """Whether they can be apart."""
    fewest_ranks: int = 2


OPERATIONS: Final[dict[str, Operation]] = {
    "all_reduce": Operation("all_reduce", divided=False, in_place=True, out_of_place=False),
    "all_gather": Operation("all_gather", divided=True, in_place=True),
    "reduce_scatter": Operation("reduce_scatter", divided=True, in_place=True),
    "all_to_all": Operation("all_to_all", divided=True, in_place=False),
    "broadcast": Operation("broadcast", divided=False, in_place=True, out_of_place=False),
    "reduce": Operation("reduce", divided=False, in_place=True, out_of_place=False),
    "gather": Operation("gather", divided=True, in_place=False),
    "scatter": Operation("scatter", divided=True, in_place=False),
    "send_recv": Operation("send_recv", divided=False, in_place=False),
    "send_recv_pairs": Operation("send_recv", divided=False, in_place=False),
    "barrier": Operation("barrier", divided=False, in_place=False),
}
"""torch's all_reduce, broadcast and reduce have one tensor for input and output; its others have two, which may
overlap in all_gather and reduce_scatter."""

SIZELESS: Final = "barrier"
"""The operator without a message."""
