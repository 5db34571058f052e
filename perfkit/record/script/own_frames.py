"""Removes perfkit's frames from the traceback of a script's error, which is then that of the script by itself."""

from pathlib import Path
from types import TracebackType
from typing import Final

_OWN: Final = tuple(
    str(Path(__file__).parents[1] / place)
    for place in ("script", "monitor", "autograd_engine.py", "recording/loader_fetches.py", "recording/loader_watch.py")
)
_COMPILER: Final = str(Path("torch", "_dynamo", "eval_frame.py"))
"""Its function around a hook that is not to be compiled."""


def remove_own_frames(error: BaseException) -> None:
    """Remove perfkit's frames from an error, and from those that led to it."""
    seen: set[int] = set()
    chain = [error]
    while chain:
        current = chain.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without_own(current.__traceback__)
        chain += [linked for linked in (current.__cause__, current.__context__) if linked is not None]


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept = [frame for frame in frames if not _is_own(frame)]
    rest: TracebackType | None = None
    for frame in reversed(kept):
        frame.tb_next = rest
        rest = frame
    return rest


def _is_own(frame: TracebackType) -> bool:
    """Return whether a frame is perfkit's, or the compiler's function around a hook of perfkit's."""
    file, inner = frame.tb_frame.f_code.co_filename, frame.tb_next
    return file.startswith(_OWN) or (file.endswith(_COMPILER) and inner is not None and _is_own(inner))
