"""What this rank does: its Python stacks, and the collectives that it has issued, from torch's flight recorder.

It is read in a separate thread, without a signal: the main thread may be inside a collective, where Python runs no
signal handler. A thread that holds Python's lock in a call that does not return keeps this from running at all.
"""

import contextlib
import multiprocessing
import os
import pickle
import socket
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perfkit.base.atomic_write import atomic_write
from perfkit.base.formatting import text_of
from perfkit.engine.hangs.flight_dump import convert_flight_dump
from perfkit.engine.hangs.folder import STATE_NAME
from perfkit.engine.hangs.places import program_frame, waits_in_message
from perfkit.engine.hangs.rules import DUE_TO_ANOTHER_RANK
from perfkit.record.endings import is_due_to_another_rank
from perfkit.record.hangs.messages import awaited_message, message_counts
from perfkit.record.own_threads import OWN_THREAD, all_threads
from perfkit.records.hang import Frame, GroupRanks, IssuedCollective, RankState, ThreadStack

_MOST_FRAMES: Final = 100
_MOST_THREADS: Final = 64
_MOST_CALLS: Final = 1000
"""The last collectives of a rank that are kept: a step of a sharded model has some hundreds."""


def read_rank_state(
    rank: int, world_size: int, steps: int | None, request: int | None = None, error: BaseException | None = None
) -> RankState:
    """Return what this rank does, without its loader workers.

    Args:
        request: Number of the request of the run that this answers, or that was answered last.
        error: What has ended the program, whose stack is then that of the main thread.
    """
    dump = _flight_dump(rank)
    calls = None if dump is None else dump.collectives
    frame = sys._current_frames().get(threading.main_thread().ident or 0) if error is None else None
    main = _error_frames(error.__traceback__) if error is not None else frames_of(frame)
    ranks_of = _ranks_of_groups()
    groups = [GroupRanks(name=name, ranks=sorted(ranks)) for name, ranks in ranks_of.items()]
    return RankState(
        rank=rank,
        world_size=world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        steps=steps,
        main=main,
        threads=_other_threads(),
        awaits_workers=error is None and bool(multiprocessing.active_children()),
        groups=groups or (dump.groups if dump else []),
        collectives=calls if calls is None or error is None else _reopened(calls, main),
        in_message=waits_in_message(main) or (dump is not None and dump.in_message),
        messages=message_counts(ranks_of),
        awaits=awaited_message(frame, ranks_of),
        request=request,
        ended=None if error is None else _how_ended(error),
    )


def write_rank_state(folder: Path, state: RankState) -> None:
    """Write `rank<R>.hang.json`."""
    try:
        content = msgspec.json.encode(state)
    except UnicodeEncodeError:  # names of the program, as in a path of other bytes
        content = msgspec.json.encode(_escaped(msgspec.to_builtins(state)))
    with atomic_write(folder / STATE_NAME.format(state.rank)) as stream:
        stream.write(content)


class _Head(Struct, frozen=True):
    """The fields of a `RankState` that show whether it is an answer; the others are not decoded."""

    request: int | None = None
    resumed: bool = False
    awaits_workers: bool = False
    paused: bool = False
    ended: str | None = None


class Answers(NamedTuple):
    """Ranks by what they have left."""

    missing: set[int]
    """Have not answered."""
    incomplete: set[int]
    """Have answered, but still wait for what their loader workers do."""
    resumed: set[int]
    """Have ended a step since they answered."""
    paused: set[int]
    """Write a trace or a checkpoint, or evaluate."""


def read_answers(folder: Path, ranks: set[int], request: int) -> Answers:
    """Return which of the ranks have answered a request of the run; an earlier answer does not count."""
    answered = {}
    for rank in ranks:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            head = msgspec.json.decode((folder / STATE_NAME.format(rank)).read_bytes(), type=_Head)
            if head.ended is not None or (head.request is not None and head.request >= request):
                answered[rank] = head
    return Answers(
        missing=ranks - answered.keys(),
        incomplete={rank for rank, head in answered.items() if head.awaits_workers},
        resumed={rank for rank, head in answered.items() if head.resumed},
        paused={rank for rank, head in answered.items() if head.paused},
    )


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return {key: _escaped(item) for key, item in value.items()} if isinstance(value, dict) else value


def _reopened(calls: list[IssuedCollective], stack: list[Frame]) -> list[IssuedCollective]:
    """Return the calls, the last one as not done if the error came out of it: torch counts a failed one as done."""
    last = max(calls, key=lambda call: call.ns, default=None)
    site = None if last is None else program_frame(last.frames)
    if last is None or site is None or (site.file, site.line) not in {(frame.file, frame.line) for frame in stack}:
        return calls
    return [replace(call, done=False) if call is last else call for call in calls]


def _how_ended(error: BaseException) -> str:
    if is_due_to_another_rank(text_of(error)):
        return DUE_TO_ANOTHER_RANK
    text = " ".join(text_of(error).split())[:200]
    return f"ended with {type(error).__name__}{f': {text}' if text else ''}"


def _other_threads() -> list[ThreadStack]:
    names = {thread.ident: thread.name for thread in all_threads()}
    stacks = []
    for ident, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
        name = names.get(ident, f"thread {ident}")
        if ident != threading.main_thread().ident and not name.startswith(OWN_THREAD):
            stacks.append(ThreadStack(thread=name, frames=frames_of(frame)))
    return stacks


def frames_of(frame: FrameType | None) -> list[Frame]:
    """Return a Python stack, innermost first."""
    frames: list[Frame] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        frames.append(_frame(frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return frames


def _frame(code: CodeType, line: int | None) -> Frame:
    # Names of files are bytes: those that are not UTF-8 could not be written.
    return Frame(function=text_of(code.co_name), file=text_of(code.co_filename), line=line or 0)


def _error_frames(trace: TracebackType | None) -> list[Frame]:
    frames: list[Frame] = []
    while trace is not None:
        frames.append(_frame(trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return frames[::-1][:_MOST_FRAMES]


def _flight_dump(rank: int) -> RankState | None:
    """Return what torch's flight recorder has; None if there is none, or no process group, or it saw nothing.

    It sees what gloo does. NCCL has its own recorder, so that without entries nothing is known.
    """
    torch, dist = sys.modules.get("torch"), sys.modules.get("torch.distributed")  # if the program has imported them
    dump = getattr(getattr(getattr(torch, "_C", None), "_distributed_c10d", None), "_dump_fr_trace", None)
    if dump is None or dist is None or not (dist.is_available() and dist.is_initialized()):
        return None
    with contextlib.suppress(Exception):  # of another version of torch: the stacks are worth writing without it
        # From this very process, so it need not be read with care, but at once: a full buffer has 10,000 entries.
        value = pickle.loads(dump())  # noqa: S301
        value["entries"] = value.get("entries", [])[-_MOST_CALLS:]
        return convert_flight_dump(value, rank) if value["entries"] else None
    return None


def _ranks_of_groups() -> dict[str, list[int]]:
    """Return, by name, the ranks of every process group that this rank is in, in their order there.

    torch has no public API for it.
    """
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # another version of torch
        names = dict(world.pg_names)  # type: ignore[union-attr]
        return {
            str(names[group]): sorted(map(int, ranks), key=ranks.get)
            for group, ranks in dict(world.pg_group_ranks).items()  # type: ignore[union-attr]
            if group in names
        }
    return {}
