"""`perfkit.step()`: a script marks the end of its steps itself.

It does nothing unless `perfkit run` records the script, so that the call can stay where it is.
"""

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def step() -> None:
    """Mark the end of a training step, for `perfkit run SCRIPT`; it does nothing otherwise.

    ::

        for batch in loader:
            train_on(batch)
            perfkit.step()

    From the first call on, steps end at these calls and nowhere else; `perfkit run --step-on perfkit.step` counts them
    from the start.
    """
    for listener in _listeners:
        listener()


def is_listened_to() -> bool:
    """Return whether marks count: whether `perfkit run` records this program."""
    return bool(_listeners)


def on_step(listener: Callable[[], None]) -> None:
    _listeners.append(listener)
