"""`perfkit.step()`: a script marks the end of its steps itself.

It does nothing unless `perfkit run` records the script, so that the call can stay where it is.
"""

from collections.abc import Callable

_listeners: list[Callable[[int | None], None]] = []


def step(samples: int | None = None) -> None:
    """Mark the end of a training step, for `perfkit run SCRIPT`; it does nothing otherwise.

    Args:
        samples: How many samples this rank has trained on in the step; without it, perfkit infers it if it can.

    ::

        for batch in loader:
            train_on(batch)
            perfkit.step()

    From the first call on, steps end at these calls and nowhere else; `perfkit run --step-on perfkit.step` counts them
    from the start.
    """
    for listener in _listeners:
        listener(samples)


def is_listened_to() -> bool:
    """Return whether marks count: whether `perfkit run` records this program."""
    return bool(_listeners)


def on_step(listener: Callable[[int | None], None]) -> None:
    """Call `listener` at each mark, with the samples of the step if they are told."""
    _listeners.append(listener)
