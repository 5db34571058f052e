"""A device that runs out of memory: the line that asked, and the figures of torch's message."""

import pytest
import torch

from perfkit.record.messages import one_line

MESSAGE = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 512.00 MiB is "
    "free. Including non-PyTorch memory, this process has 78.65 GiB memory in use. Of the allocated memory 70.00 GiB "
    "is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated."
)


def allocate(message: str) -> None:
    raise torch.OutOfMemoryError(message)


def said(message: str) -> str:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        allocate(message)
    return one_line(caught.value)


def test_it_is_said_where_how_much_was_asked_for_and_what_was_free() -> None:
    line = allocate.__code__.co_firstlineno + 1
    assert said(MESSAGE) == f"out of memory at test_out_of_memory.py:{line}: asked for 21.5 GB, 537 MB free"


def test_what_the_message_does_not_have_is_left_out() -> None:
    assert said("XPU out of memory. Tried to allocate 64.00 MiB. ...").endswith(": asked for 67.1 MB")


def test_another_message_stays_as_it_is() -> None:
    assert said("Allocation on device") == "OutOfMemoryError: Allocation on device"
