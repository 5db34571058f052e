"""Tell what a kernel of NCCL sends and receives that torch issued as a batch (`batch_isend_irecv`).

Each message of a batch has metadata, in a separate event, but the kernel is launched after all of these and has none
(pytorch issue 194693): it is that of the messages which its thread issued since the last such launch.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import OPERATORS, CollectiveKey, from_metadata
from perfkit.engine.kinds.classify import rows_by_key
from perfkit.records.trace_header import RecordedMessage
from perfkit.trace.events import MOST_RANKS, CollectiveArgs, Events
from perfkit.trace.intervals import Ints

SEND: Final = "send"
RECEIVE: Final = "recv"
EXCHANGE: Final = "send_recv"
"""A kernel that sends and receives."""
_MANY: Final = int(np.iinfo(np.int64).max)


class MessageBatches(NamedTuple):
    """The messages of each kernel; columns of shape (k,)."""

    source: Ints
    """Row of the event that describes the first; -1 if there is none."""
    messages: Ints
    """Their number."""
    receives: Ints
    """Number of those that are received."""
    peer: Ints
    """Rank on the other side of all of them; -1 if they differ, or it is unknown."""


def find_message_batches(
    events: Events, launch_row: Ints, is_batch: NDArray[np.bool_], described: Ints
) -> MessageBatches:
    """Return the messages of kernels that are described by nothing else.

    Args:
        events: the trace.
        launch_row: row of each kernel's launch; -1 if unknown.
        is_batch: whether a kernel may be one of a batch.
        described: rows of events that describe another kernel.
    """
    count = len(launch_row)
    found = MessageBatches(*(np.full(count, start, np.int64) for start in (-1, 0, 0, -1)))
    metadata = events.collective_args
    messages = metadata.rows_where(_is_message)
    messages = messages[~np.isin(messages, described)]
    kernels = np.flatnonzero(is_batch & (launch_row >= 0))
    if not len(messages) or not len(kernels):
        return found
    kernel = np.full(len(messages), -1, np.int64)
    by_thread = rows_by_key(events.thread[launch_row], kernels)
    for thread, places in rows_by_key(events.thread[messages]).items():
        own = by_thread.get(thread, kernels[:0])
        own = own[np.argsort(events.start_ns[launch_row[own]], kind="stable")]
        after = np.searchsorted(events.start_ns[launch_row[own]], events.end_ns[messages[places]])
        kernel[places[after < len(own)]] = own[after[after < len(own)]]
    messages, kernel = messages[kernel >= 0], kernel[kernel >= 0]
    _add_up(found, events, messages, kernel)
    return found


def _is_message(args: CollectiveArgs) -> bool:
    return args.operator in (SEND, RECEIVE)


def _add_up(found: MessageBatches, events: Events, messages: Ints, kernel: Ints) -> None:
    """Fill in the columns of the kernels of each message."""
    number, args = events.collective_args.args_index(messages), events.collective_args.args
    order = np.argsort(events.start_ns[messages], kind="stable")[::-1]
    found.source[kernel[order]] = messages[order]  # the first is written last
    np.add.at(found.messages, kernel, 1)
    np.add.at(found.receives, kernel, np.array([one.operator == RECEIVE for one in args], np.int64)[number])
    peer = np.array([-1 if one.peer is None else one.peer for one in args], np.int64)[number]
    least, most = np.full(len(found.peer), _MANY), np.full(len(found.peer), -1)
    np.minimum.at(least, kernel, peer)
    np.maximum.at(most, kernel, peer)
    found.peer[:] = np.where(least == most, most, -1)


def describe_batch(args: CollectiveArgs, count: int, receives: int, peer: int) -> CollectiveKey:
    """Describe the kernel of a batch by the first of its messages, their number, and what is common to them."""
    operator = RECEIVE if receives == count else EXCHANGE if receives else SEND
    one = from_metadata(operator, replace(args, operator=operator))
    # Sizes of several messages are not one size.
    return one._replace(bytes=one.bytes if count == 1 else None, peer=peer if peer >= 0 else None)


def is_exchange(kind: CollectiveKey) -> bool:
    """Return whether a kernel sends to one rank and receives from it: part of two pairs, and so of no match."""
    return kind.operator == EXCHANGE and kind.peer is not None


def find_peers(operator: Ints, step: Ints, messages: Sequence[RecordedMessage]) -> Ints:
    """Return the rank on the other side of each send and receive; -1 for other collectives, and if it is unknown.

    A step that has more or fewer of them than the list is not one of the pipeline's usual ones: none of its peers is
    known.

    Args:
        operator: operator of each collective, as in `perfkit.engine.communication.collective_metadata`, in
            order of issue; shape (c,).
        step: step of each.
        messages: what the header lists.
    """
    peer = np.full(len(operator), -1, np.int64)
    for name in ("send", "recv"):
        listed = np.array([message.peer for message in messages if message.operator == name], np.int64)
        listed[(listed < 0) | (listed >= MOST_RANKS)] = -1
        rows = np.flatnonzero(operator == OPERATORS.index(name))
        rows = rows[np.argsort(step[rows], kind="stable")]
        _, first, count = np.unique(step[rows], return_index=True, return_counts=True)
        for begin in first[count == len(listed)].tolist():
            peer[rows[begin : begin + len(listed)]] = listed
    return peer
