"""Sends and receives between two ranks: torch's record of gloo lacks them, so they are counted as they are issued.

A count per peer shows which end of a message is missing. Which message the main thread waits for is found when it is
asked, from the call of `wait` that it is in.
"""

import dis
import functools
from collections.abc import Callable, Mapping, Sequence
from inspect import getattr_static
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from perfkit.record.import_hook import run_after_import
from perfkit.records.hang import AwaitedMessage, MessageCount, MessageKind

_METHODS: Final[tuple[tuple[str, MessageKind, tuple[str, ...]], ...]] = (
    ("send", "send", ("tensors", "dstRank", "tag")),
    ("recv", "recv", ("tensors", "srcRank", "tag")),
    ("recv_anysource", "recv", ("tensors", "tag")),
)
"""Of torch's process group, with the names of their parameters: every send and receive calls one of them."""
_OWN: Final = str(Path(__file__).parents[2])
_PLAIN_LOADS: Final = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")


class _Message(NamedTuple):
    kind: MessageKind
    group: str
    peer: int | None
    """Rank in the group; None for a receive from any."""
    tag: int
    number: int
    """Number among those of its kind, group and peer; of a receive from any, among all receives of the group."""


_counts: Final[dict[tuple[MessageKind, str, int | None], int]] = {}
_descriptions: Final[dict[str, str]] = {}
"""What the program calls the groups, by their names."""
_open: Final[WeakKeyDictionary[Any, _Message]] = WeakKeyDictionary()
"""By torch's handle, as long as the program, or the call that waits for it, holds it."""


@functools.cache
def count_messages() -> None:
    """Count the sends and receives of this process from now on; torch has been imported."""
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return
    for name, kind, parameters in _METHODS:
        method = getattr(dist.ProcessGroup, name)
        setattr(dist.ProcessGroup, name, _counted(method, kind, parameters, torch.compiler.is_compiling))

    def leave_uncompiled() -> None:
        for name, *_ in _METHODS:
            counted = getattr(dist.ProcessGroup, name)
            setattr(dist.ProcessGroup, name, torch.compiler.disable(counted))  # type: ignore[no-untyped-call]

    run_after_import("torch._dynamo", leave_uncompiled)  # loading it takes seconds


def _counted(
    method: Callable[..., Any], kind: MessageKind, parameters: Sequence[str], is_compiling: Callable[[], bool]
) -> Callable[..., Any]:
    @functools.wraps(method)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        work = method(self, *args, **kwargs)
        if not is_compiling():
            given = dict(zip(parameters, args, strict=False)) | kwargs
            _note(work, kind, self, given.get("dstRank", given.get("srcRank")), given["tag"])
        return work

    return counted


def _note(work: Any, kind: MessageKind, process_group: Any, peer: int | None, tag: int) -> None:
    group = process_group.group_name
    key = (kind, group, peer)
    if key not in _counts:
        _descriptions[group] = process_group.group_desc
    number = _counts[key] = _counts.get(key, 0) + 1
    if peer is None:
        number = sum(count for (kind, name, _), count in _counts.items() if (kind, name) == ("recv", group))
    if work is not None:
        _open[work] = _Message(kind, group, peer, tag, number)


def message_counts(groups: Mapping[str, Sequence[int]]) -> list[MessageCount] | None:
    """Return how many sends and receives this rank has issued; None if they are not counted.

    Args:
        groups: By name of a group, its ranks in order.
    """
    if not count_messages.cache_info().currsize:
        return None
    return [
        MessageCount(kind=kind, group=group, peer=_global(groups[group], peer), count=count)
        for (kind, group, peer), count in list(_counts.items())
        if group in groups
    ]


def awaited_message(frame: FrameType | None, groups: Mapping[str, Sequence[int]]) -> AwaitedMessage | None:
    """Return the message that a thread waits for; None if it waits for none, or it is not known for which."""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    if frame is None or (awaited := _object_of_wait(frame)) is None:
        return None
    open_ = (message for work, message in list(_open.items()) if work is awaited and not work.is_completed())
    message = next(open_, None)
    if message is None or message.group not in groups:
        return None
    peer = _global(groups[message.group], message.peer)
    description = _descriptions[message.group]
    return AwaitedMessage(
        kind=message.kind,
        group=message.group,
        description=message.group if description == "undefined" else description,
        peer=peer,
        tag=message.tag,
        number=message.number,
    )


def _global(ranks: Sequence[int], peer: int | None) -> int | None:
    return ranks[peer] if peer is not None and 0 <= peer < len(ranks) else None


def _object_of_wait(frame: FrameType) -> Any:
    """Return x if a function is inside a call of `x.wait()`, and x is a variable or an attribute of one; else None.

    No file is read for it, and nothing of the program is called.
    """
    spans = list(frame.f_code.co_positions())
    line, _, column, _ = spans[frame.f_lasti // 2] if 0 <= frame.f_lasti // 2 < len(spans) else (None,) * 4
    if line is None or column is None:
        return None
    instructions = list(dis.get_instructions(frame.f_code))
    for index, now in enumerate(instructions):
        starts = now.positions is not None and (now.positions.lineno, now.positions.col_offset) == (line, column)
        if starts and now.argval == "wait" and now.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            return _loaded(frame, instructions[:index])
    return None


def _loaded(frame: FrameType, instructions: Sequence[dis.Instruction]) -> Any:
    """Return what the last of some instructions have loaded; None if it is neither a variable nor its attribute."""
    attributes: list[str] = []
    for instruction in reversed(instructions):
        name = instruction.argval
        if instruction.opname == "LOAD_ATTR":
            attributes.append(name)
            continue
        if not instruction.opname.startswith(_PLAIN_LOADS) or not isinstance(name, str):
            return None
        value = frame.f_locals.get(name, frame.f_globals.get(name))
        return functools.reduce(lambda of, attribute: getattr_static(of, attribute, None), reversed(attributes), value)
    return None
