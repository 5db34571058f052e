"""Where a rank is: the innermost function of the program in a Python stack, not of a library."""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

from perfkit.base.formatting import escape_unprintable
from perfkit.records.hang import AwaitedMessage, Frame, RankState

DEFAULT_GROUP: Final = "default_pg"
"""torch's description of the process group of all ranks."""
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3")
_PACKAGE: Final = f"{Path(__file__).parents[2]}/"
_OWN: Final = (_PACKAGE, "/perfkit/record/", "/perfkit/integrations/", "/perfkit/cli/", "/perfkit/__main__.py")
"""All of perfkit, and of one elsewhere, as where a record of another machine is read, what is on a program's stack."""
_TRAINING: Final = "/perfkit/record/training/"
"""Except for this: the loop in which perfkit trains its own workloads, which never runs inside a script."""
_MESSAGES: Final = ("send", "recv", "send_object_list", "recv_object_list", "batch_isend_irecv")
_TORCH_MESSAGES: Final = "/torch/distributed/distributed_c10d.py"
_LOADER: Final = "/torch/utils/data/dataloader.py"


def program_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost function of the program; of a library if there is none, None without any."""
    own = (frame for frame in frames if not frame.file.startswith("<") and not _is_library(frame.file))
    return next(own, frames[0] if frames else None)


def _is_library(file: str) -> bool:
    own = _TRAINING not in file and any(part in file for part in _OWN)
    return own or any(part in file for part in _LIBRARIES)


def show_frame(frame: Frame, *, function: bool = True) -> str:
    """Return `` `load_batch` at data.py:88``, or only `data.py:88`."""
    place = escape_unprintable(f"{PurePath(frame.file).name}:{frame.line}")
    if not function or frame.function in ("<module>", ""):
        return place
    return f"`{escape_unprintable(frame.function)}` at {place}"


def waits_for_loader(frames: Sequence[Frame]) -> bool:
    """Return whether a stack is inside torch's DataLoader, waiting for a worker."""
    return any(frame.file.endswith(_LOADER) and frame.function in ("_try_get_data", "_get_data") for frame in frames)


def waits_in_message(frames: Sequence[Frame]) -> bool:
    """Return whether a stack is inside a send or a receive of torch between two ranks."""
    return any(frame.file.endswith(_TORCH_MESSAGES) and frame.function in _MESSAGES for frame in frames)


def describe_awaited(message: AwaitedMessage, main: Sequence[Frame]) -> str:
    """Return `recv from rank 1 at pipe.py:20`; the group is named unless it is that of all ranks."""
    way = "from" if message.kind == "recv" else "to"
    peer = "any rank" if message.peer is None else f"rank {message.peer}"
    tag = f" with tag {message.tag}" if message.tag else ""
    group = "" if message.description == DEFAULT_GROUP else f" of group {escape_unprintable(message.description)}"
    frame = program_frame(main)
    place = "" if frame is None else f" at {show_frame(frame, function=False)}"
    return f"{message.kind} {way} {peer}{tag}{group}{place}"


def describe_place(state: RankState) -> str | None:
    """Return what a rank's main thread does, after `it`: `is in ...`; None if it is not known."""
    if state.ended is not None:
        return state.ended
    if state.awaits is not None:
        return f"waits in {describe_awaited(state.awaits, state.main)}"
    frame = program_frame(state.main)
    if frame is None:
        return None
    if not waits_for_loader(state.main):
        return f"is in {show_frame(frame)}"
    workers = [program_frame(worker.frames) for worker in state.workers]
    stuck = [show_frame(place) for place in workers if place is not None]
    text = f"waits for its data loader at {show_frame(frame, function=False)}"
    return f"{text}, whose worker is in {stuck[0]}" if stuck else text
