"""Reads the dumps of torch's flight recorder: pickles (NCCL's `nccl_trace_rank_<R>`) and their JSON form.

Both have the same fields, as in `torch/csrc/distributed/c10d/FlightRecorder` of torch 2.5 to 2.13.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from perfkit.base.dtypes import DTYPES, tensor_bytes
from perfkit.base.plain_pickle import PlainPickleError, count_copied, load_plain
from perfkit.base.validation import plain_message
from perfkit.errors import StoreError
from perfkit.records.hang import Frame, GroupRanks, IssuedCollective, RankState, Whole

PICKLE_START: Final = b"\x80"
_MOST_ENTRIES: Final = 200_000
_FREE_VALUES: Final = 100_000
_MOST_VALUES_PER_BYTE: Final = 4
"""A dump shares frames, four values each, which it mentions in two bytes or more; others are copied as often."""
_MOST_MEMBERS: Final = 10_000_000
"""Ranks of all groups."""
_MOST_TENSORS: Final = 4096
_MOST_DIMENSIONS: Final = 16
_MOST_FRAMES: Final = 200
_MOST_MESSAGE_BYTES: Final = 2**62
_RANKS = re.compile(r"\b\d{1,6}\b")


class _Frame(Struct, frozen=True):
    name: str
    filename: str
    line: Whole


class _Entry(Struct, frozen=True):
    """The fields of an entry that are used."""

    process_group: tuple[str, str]
    collective_seq_id: Whole
    profiling_name: str
    time_created_ns: Whole
    state: str
    input_sizes: list[list[Whole]] = []
    input_dtypes: list[str] = []
    output_dtypes: list[str] = []
    is_p2p: bool = False
    retired: bool = False
    frames: list[_Frame] = []


class _Group(Struct, frozen=True):
    name: str = ""
    ranks: str = ""


class _Dump(Struct, frozen=True):
    version: str
    entries: list[_Entry] = []
    pg_config: dict[str, _Group] = {}


def read_flight_dump(data: bytes, rank: int) -> RankState:
    """Return what a dump shows about its rank.

    Args:
        rank: From the file's name: the dump itself does not contain it.

    Raises:
        StoreError: It is not such a dump, is damaged, or contains more than plain data.
    """
    return convert_flight_dump(_load_pickle(data) if data.startswith(PICKLE_START) else _load_json(data), rank)


def convert_flight_dump(value: Any, rank: int) -> RankState:
    """Return what a dump shows about its rank, from its lists and dicts.

    Raises:
        StoreError: It is not such a dump.
    """
    dump = _convert(value)
    if len(dump.entries) > _MOST_ENTRIES:
        raise StoreError(f"it has more than {_MOST_ENTRIES:,} entries")
    named = {name: group.ranks for name, group in dump.pg_config.items() if group.ranks not in ("", "[]")}
    ranks_of = {text: list(map(int, _RANKS.findall(text))) for text in dict.fromkeys(named.values())}
    if sum(len(ranks_of[text]) for text in named.values()) > _MOST_MEMBERS:
        raise StoreError(f"its groups have more than {_MOST_MEMBERS:,} ranks")
    groups = [GroupRanks(name=name, ranks=ranks_of[text]) for name, text in named.items()]
    calls = [_issued(entry) for entry in dump.entries if not entry.is_p2p]
    return RankState(
        rank=rank,
        groups=groups,
        collectives=calls if dump.entries else None,
        in_message=any(entry.is_p2p and not _has_ended(entry) for entry in dump.entries),
    )


def _has_ended(entry: _Entry) -> bool:
    return entry.retired or entry.state == "completed"


def _load_pickle(data: bytes) -> Any:
    """Return the value of a pickle, unless it is far larger than its bytes because it has one list many times.

    Raises:
        PlainPickleError: It is.
    """
    value = load_plain(data)
    if count_copied(value) > _FREE_VALUES + _MOST_VALUES_PER_BYTE * len(data):
        raise PlainPickleError(f"possible bomb: {len(data):,} bytes have one list or dictionary many times")
    return value


def _load_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise StoreError(f"it is neither a pickle nor JSON: {error}") from error


def _convert(value: Any) -> _Dump:
    try:
        return msgspec.convert(value, _Dump)
    except (msgspec.ValidationError, RecursionError) as error:
        raise StoreError(f"it is not a dump of torch's flight recorder: {plain_message(str(error))}") from error


def _issued(entry: _Entry) -> IssuedCollective:
    sizes = [shape[:_MOST_DIMENSIONS] for shape in entry.input_sizes[:_MOST_TENSORS]]
    group, description = entry.process_group
    dtypes = entry.input_dtypes or entry.output_dtypes
    total = tensor_bytes(sizes, entry.input_dtypes)
    return IssuedCollective(
        group=group,
        description="" if description == "undefined" else description,
        seq=entry.collective_seq_id,
        op=entry.profiling_name.rpartition(":")[2],
        sizes=sizes,
        dtype=DTYPES.get(dtypes[0].lower(), (dtypes[0],))[0] if dtypes else None,
        bytes=total if sizes and total is not None and total <= _MOST_MESSAGE_BYTES else None,
        done=_has_ended(entry),
        ns=entry.time_created_ns,
        frames=[
            Frame(function=frame.name, file=frame.filename, line=frame.line) for frame in entry.frames[:_MOST_FRAMES]
        ],
    )
