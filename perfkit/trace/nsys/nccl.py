"""Collectives, from the ranges of NCCL's own NVTX domain.

NCCL annotates its functions in the domain `NCCL`, since 2.18 with a payload: the communicator, bytes, peer; and where a
communicator is made, its rank and number of ranks (src/include/nvtx_payload_schemas.h). nsys writes a payload as
bytes, with tables of what they mean, or as JSON.
"""

import re
import struct
from typing import Any, Final, NamedTuple

import msgspec

from perfkit.trace.events import MOST_RANKS, CollectiveArgs
from perfkit.trace.nsys.database import Database

DOMAIN: Final = "NCCL"
_ENTRIES: Final = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_COMMUNICATOR: Final = "NCCL communicator ID"
_BYTES: Final = "Message size [bytes]"
_RANKS, _RANK, _PEER = "No. of ranks", "Rank", "Peer rank"
_FIELDS: Final = (_COMMUNICATOR, _BYTES, _RANKS, _RANK, _PEER)
_COLLECTIVE: Final = re.compile(
    r"(?:nccl|pnccl)(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|Send|Recv|AllToAll|AlltoAll|Gather|Scatter)$"
)
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")
_HEADER: Final = struct.Struct("<QQQQ")
"""Of a payload: domain, schema, bytes of the payload, bytes with this header."""
_NUMBERS: Final = {4: struct.Struct("<I"), 8: struct.Struct("<Q")}
_EIGHT_BYTES: Final = (8, 18, 22)
"""`NVTX_PAYLOAD_ENTRY_TYPE` of long, uint64 and size_t; the other numbers of NCCL are 32 bits wide."""


class Communicator(NamedTuple):
    """A communicator of the process, as its payload describes it."""

    rank: int
    ranks: int


class Calls:
    """What NCCL's ranges say of the process."""

    def __init__(self, database: Database) -> None:
        self._layouts = _layouts(database)
        self.communicators: dict[int, Communicator] = {}

    @property
    def world(self) -> Communicator | None:
        """The largest communicator, the first of these."""
        return max(self.communicators.values(), key=lambda one: one.ranks, default=None)

    def payload(self, data: str | bytes | None) -> dict[str, int]:
        """Return the fields of a payload, as JSON or as bytes; empty if it has none that can be read."""
        if not data:
            return {}
        return _from_json(data) if data[:1] in ("{", b"{") else self._from_bytes(data)

    def _from_bytes(self, data: str | bytes) -> dict[str, int]:
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        if len(raw) < _HEADER.size:
            return {}
        _, schema, size, _ = _HEADER.unpack_from(raw)
        payload = raw[_HEADER.size : _HEADER.size + min(size, len(raw))]
        return {
            name: number.unpack_from(payload, offset)[0]
            for name, offset, number in self._layouts.get(schema & 0xFFFFFFFF, ())
            if offset + number.size <= len(payload)
        }

    def note(self, fields: dict[str, int]) -> None:
        """Note the communicator that a call makes."""
        if {_COMMUNICATOR, _RANKS, _RANK} <= fields.keys() and 0 <= fields[_RANK] < fields[_RANKS] < MOST_RANKS:
            self.communicators[fields[_COMMUNICATOR]] = Communicator(fields[_RANK], fields[_RANKS])

    def describe(self, name: str, fields: dict[str, int]) -> CollectiveArgs | None:
        """Return what the call of a collective says of it; None if it says nothing.

        NCCL gives bytes: what an all_gather has of each rank, and a reduce_scatter for each rank.
        """
        if _COMMUNICATOR not in fields:
            return None
        of = self.communicators.get(fields[_COMMUNICATOR])
        whole = peer = None
        if of is not None:
            whole = fields[_BYTES] * of.ranks if _BYTES in fields else None
            peer = fields.get(_PEER) if of == self.world else None
        one = fields.get(_BYTES)
        is_gather, is_scatter = name.endswith("all_gather"), name.endswith("reduce_scatter")
        return CollectiveArgs(
            operator=name.partition(":")[2],
            in_elements=whole if is_scatter else one,
            out_elements=whole if is_gather else one,
            dtype=None if one is None else "Byte",
            group=f"{fields[_COMMUNICATOR]:#x}",
            group_size=of and of.ranks,
            peer=peer,
        )


def collective_name(text: str) -> str | None:
    """Return the name that torch gives a collective of NCCL, such as `nccl:all_reduce`; None for other functions."""
    match = _COLLECTIVE.match(text)
    if match is None:
        return None
    name = {"Bcast": "Broadcast", "AlltoAll": "AllToAll"}.get(match[1], match[1])
    return f"nccl:{_WORD.sub('_', name).lower()}"


def _layouts(database: Database) -> dict[int, list[tuple[str, int, struct.Struct]]]:
    """Return the fields of each schema of payloads: name, offset, and how the number is stored."""
    layouts: dict[int, list[tuple[str, int, struct.Struct]]] = {}
    if not database.has(_ENTRIES, "schemaId", "type", "name"):
        return layouts
    for block, names in database.integers_and_text(_ENTRIES, ["schemaId", "type", "offset"], "name"):
        for schema, kind, offset, name in zip(*block.tolist(), names, strict=True):
            if name in _FIELDS and isinstance(name, str):
                number = _NUMBERS[8 if kind in _EIGHT_BYTES else 4]
                layouts.setdefault(schema & 0xFFFFFFFF, []).append((name, max(offset, 0), number))
    return layouts


def _from_json(data: str | bytes) -> dict[str, int]:
    try:
        decoded: Any = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return {}
    found = {key: decoded.get(key) for key in _FIELDS} if isinstance(decoded, dict) else {}
    return {key: value for key, value in found.items() if type(value) is int and 0 <= value < 2**63}
