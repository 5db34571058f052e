"""Message sizes: in steps of a factor, and in elements that every rank can divide."""

from typing import NamedTuple


class Message(NamedTuple):
    """The size of a collective: S of metrics.md section 5, and its elements."""

    bytes: int
    elements: int
    per_rank: int
    """Elements of one rank's part, where parts of ranks are put together; otherwise all elements."""


def messages(smallest: int, largest: int, factor: int, item_bytes: int, parts: int) -> list[Message]:
    """Return the distinct messages from `smallest` to `largest` bytes, each `factor` times the one before.

    Args:
        smallest: Bytes.
        largest: Bytes.
        factor: At least 2.
        item_bytes: Bytes of an element.
        parts: Number of ranks among which the elements are divided; 1 if they are not. Sizes are rounded down to a
            multiple, but to no less than one element per rank.
    """
    found: dict[int, Message] = {}
    size = smallest
    while size <= largest:
        per_rank = max(1, size // (item_bytes * parts))
        elements = per_rank * parts
        found.setdefault(elements, Message(elements * item_bytes, elements, per_rank))
        size *= factor
    return list(found.values())
