"""Which send or receive the main thread waits for, and how many were issued."""

import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch.distributed as dist

from perfkit.record.hangs import messages
from perfkit.record.hangs.messages import awaited_message

GROUPS = {"0": [4, 5, 6]}


class Handle:
    """In place of torch's: its `wait` comes back when the test has looked."""

    look: Callable[[], None]

    def __init__(self) -> None:
        self.completed = False

    def is_completed(self) -> bool:
        return self.completed

    @property
    def wait(self) -> Callable[[], None]:
        return self.look


class Group:
    group_name, group_desc = "0", "default_pg"


@pytest.fixture(autouse=True)
def no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_counts", "_descriptions", "_open"):
        monkeypatch.setattr(messages, name, type(getattr(messages, name))())


def issue(peer: int | None, tag: int = 0) -> Handle:
    handle = Handle()
    messages._note(handle, "recv", Group(), peer, tag)
    return handle


def seen_in(run: Callable[[], Any]) -> Any:
    """Return what a thread is seen to wait for while it is in its handle's `wait`."""
    waiting, looked = threading.Event(), threading.Event()
    ident: list[int] = []
    # A frame of C, as in torch, is not seen: the event's own frames are not of the program, and skipped here.

    def look() -> None:
        ident.append(threading.get_ident())
        waiting.set()
        looked.wait(30)

    Handle.look = staticmethod(look)
    thread = threading.Thread(target=run)
    thread.start()
    assert waiting.wait(30)
    frame: FrameType | None = sys._current_frames()[ident[0]]
    while frame is not None and (frame.f_code is look.__code__ or frame.f_code.co_filename == threading.__file__):
        frame = frame.f_back
    found = awaited_message(frame, GROUPS)
    looked.set()
    thread.join()
    return found


def test_the_handle_that_is_waited_for_tells_which_of_several() -> None:
    handles = [issue(0), issue(2, tag=7), issue(2)]

    def wait_for_each() -> None:
        for handle in handles[1:2]:
            handle.wait()

    found = seen_in(wait_for_each)
    assert (found.kind, found.description, found.peer, found.tag, found.number) == ("recv", "default_pg", 6, 7, 1)


def test_a_handle_is_known_by_its_attribute_too() -> None:
    class Owner:
        handle, done, other = issue(2), issue(0), Handle()

    Owner.done.completed = True
    assert seen_in(lambda: Owner.handle.wait()).peer == 6
    assert seen_in(lambda: Owner.done.wait()) is None
    assert seen_in(lambda: Owner.other.wait()) is None


def test_a_handle_without_a_name_is_not_guessed_though_it_may_be_the_only_one() -> None:
    """What has no name may be an event of the program, or a future."""
    handles = [issue(0)]
    assert seen_in(lambda: handles[0].wait()) is None


def test_without_a_source_the_messages_of_all_count() -> None:
    handle = issue(None)
    found = seen_in(lambda: handle.wait())
    assert (found.peer, found.number) == (None, 1)


def test_waiting_for_something_else_is_no_message() -> None:
    kept, other = issue(0), Handle()
    assert seen_in(lambda: other.wait()) is None

    def look() -> None:
        kept.look()

    assert seen_in(look) is None


def test_what_is_over_is_forgotten_and_counted() -> None:
    for _ in range(3):
        issue(1)
    issue(None)
    assert not messages._open
    assert messages._counts == {("recv", "0", 1): 3, ("recv", "0", None): 1}
    kept = issue(None)
    assert messages._open[kept].number == 5


@pytest.mark.slow  # loads the compiler: 5 s of CPU
def test_counting_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo
    from torch.testing._internal.distributed.fake_pg import FakeStore

    for name, *_ in messages._METHODS:  # restored at the end
        monkeypatch.setattr(dist.ProcessGroup, name, getattr(dist.ProcessGroup, name))
    messages.count_messages.__wrapped__()
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    torch._dynamo.reset()
    breaks = torch._dynamo.utils.counters["graph_break"]
    breaks.clear()

    @torch.compile(backend="eager")
    def step(value: torch.Tensor) -> torch.Tensor:
        dist.isend(value, 1)
        return value + 1

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step(torch.ones(2))
            step(torch.ones(2))
    finally:
        dist.destroy_process_group()
    assert messages._counts == {("send", "0", 1): 2}
    assert not [reason for reason in breaks if "pybind" in reason]
