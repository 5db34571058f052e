"""Every pair of ranks once, in rounds of disjoint pairs."""

from collections.abc import Iterator


def rounds(ranks: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the rounds of a round-robin tournament: ranks - 1, or as many as ranks if that is odd.

    The circle method: one place stays, the others move on by one after each round. With an odd number the place that
    stays is empty, so that another rank pauses in each round.
    """
    circle: list[int | None] = list(range(ranks))
    if ranks % 2:
        circle.insert(0, None)
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield [(min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None]
        circle = [circle[0], circle[-1], *circle[1:-1]]
