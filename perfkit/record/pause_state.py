"""Whether this rank's training pauses: what every hook asks."""


class PauseState:
    """Whether training pauses, and for how long it has so far: plain attributes, as they are read in every step."""

    __slots__ = ("in_progress", "total_ns")

    def __init__(self) -> None:
        self.in_progress = False
        self.total_ns = 0
