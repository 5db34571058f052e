"""Where a rank is: the innermost function of the program in a Python stack, not of a library."""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

from perfkit.records.facts import Fact, fact
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


def code_line(frame: Frame, *, function: bool = False) -> Fact:
    """Return a line of code, also by its function if that has a name."""
    named = frame.function if function and frame.function != "<module>" else ""
    return fact("code_line", file=PurePath(frame.file).name, line=frame.line, function=named)


def issued_at(frames: Sequence[Frame]) -> Fact | None:
    """Return where the program issued something; None if that was not recorded."""
    frame = program_frame(frames)
    return None if frame is None else code_line(frame)


def waits_for_loader(frames: Sequence[Frame]) -> bool:
    """Return whether a stack is inside torch's DataLoader, waiting for a worker."""
    return any(frame.file.endswith(_LOADER) and frame.function in ("_try_get_data", "_get_data") for frame in frames)


def waits_in_message(frames: Sequence[Frame]) -> bool:
    """Return whether a stack is inside a send or a receive of torch between two ranks."""
    return any(frame.file.endswith(_TORCH_MESSAGES) and frame.function in _MESSAGES for frame in frames)


def describe_awaited(message: AwaitedMessage, main: Sequence[Frame]) -> Fact:
    group = None if message.description == DEFAULT_GROUP else message.description
    return fact("message", kind=message.kind, peer=message.peer, tag=message.tag, group=group, site=issued_at(main))


def describe_place(state: RankState) -> Fact | None:
    """Return what a rank's main thread does; None if it is not known."""
    if state.ended is not None:
        return fact("text", text=state.ended)
    if state.awaits is not None:
        return fact("waits_in", what=describe_awaited(state.awaits, state.main))
    frame = program_frame(state.main)
    if frame is None:
        return None
    if not waits_for_loader(state.main):
        return fact("is_in", code=code_line(frame, function=True))
    workers = [program_frame(worker.frames) for worker in state.workers]
    stuck = [code_line(one, function=True) for one in workers if one is not None]
    return fact("waits_for_loader", code=code_line(frame), worker=stuck[0] if stuck else None)
