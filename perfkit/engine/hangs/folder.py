"""Reads what the ranks of a run left in a folder: perfkit's records and dumps of torch's flight recorder."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from perfkit.base.regular_file import read_regular
from perfkit.base.validation import decode_json, plain_message
from perfkit.engine.hangs.flight_dump import read_flight_dump
from perfkit.engine.hangs.rules import diagnose
from perfkit.errors import StoreError
from perfkit.records.facts import statement
from perfkit.records.hang import RANK_STATE_VERSION, Diagnosis, RankState
from perfkit.storage.run_folder import read_failure

STATE_NAME: Final = "rank{}.hang.json"
_MOST_BYTES: Final = 256 * 2**20
_STATE = re.compile(r"rank(\d{1,6})\.hang\.json")
_DUMP = re.compile(r".*?(\d{1,6})(?:\.json|\.pkl|\.pickle)?")
"""torch's dumps: the name ends in the rank, `nccl_trace_rank_3` by default."""
_OTHERS: Final = ("run.json", "failure.json", "hang.json", "hangs.json")


def diagnose_folder(
    folder: Path, *, absent: Mapping[int, str] | None = None, silent: Mapping[int, str] | None = None
) -> Diagnosis:
    """Diagnose what is in a folder.

    Args:
        folder: A run's folder, or one with the dumps of all ranks.
        absent: What is known of ranks that have ended or are stopped: it is newer than what they left while they ran.
        silent: Why ranks have written nothing.

    Raises:
        StoreError: The folder cannot be read, or has neither records nor dumps.
    """
    states: dict[int, RankState] = {}
    unread: list[str] = []
    for path in _candidates(folder):
        try:
            state = _read(path)
        except (StoreError, OSError) as error:
            unread.append(f"{path.name}: {getattr(error, 'strerror', None) or error}")
            continue
        if state.rank in states:
            unread.append(statement("second_record", file=path.name, rank=state.rank))
        else:
            states[state.rank] = state
    if not states and not absent and not silent:
        why = f": {unread[0]}" if unread else ""
        raise StoreError(
            f"{folder} has no record of a rank that can be read{why}; expected are rank<R>.hang.json, which perfkit "
            "run leaves, and dumps of torch's flight recorder, such as nccl_trace_rank_<R>"
        )
    current = _current(states)
    gone = {rank: text for rank, text in (absent or {}).items() if rank not in current or current[rank].ended is None}
    known = {rank: text for rank, text in (silent or {}).items() if rank not in current} | gone
    old = sorted(states.keys() - current.keys() - known.keys())
    left = [state for rank, state in current.items() if rank not in gone]
    left += [RankState(rank=rank, world_size=states[rank].world_size) for rank in old]
    unread += [statement("old_record", file=STATE_NAME.format(rank)) for rank in old]
    failure = read_failure(folder)
    first = None if failure is None else failure.rank
    return diagnose(statement("text", text=str(folder)), left, absent=known, unread=unread, first=first)


def _current(states: Mapping[int, RankState]) -> dict[int, RankState]:
    """Return what tells of one moment: the answers to the last request, and how ranks have ended.

    Of ranks of which some have gone on and others have not, only the latter tell what is the case now.
    """
    last = max((state.request for state in states.values() if state.request is not None), default=None)
    current = {
        rank: state
        for rank, state in states.items()
        if state.ended is not None or state.request is None or state.request == last
    }
    return {rank: state for rank, state in current.items() if not state.resumed} or current


def _candidates(folder: Path) -> list[Path]:
    """Return perfkit's records, which have more, before torch's dumps; without any, the only other candidates."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
    except NotADirectoryError as error:
        raise StoreError(f"{folder} is a file: give the folder with the records or dumps of all ranks") from error
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {error.strerror}") from error
    states = [name for name in names if _STATE.fullmatch(name)]
    dumps = [name for name in names if not name.startswith(".") and name not in _OTHERS and _DUMP.fullmatch(name)]
    return [folder / name for name in states or dumps]


def _read(path: Path) -> RankState:
    data = read_regular(path, most_bytes=_MOST_BYTES)
    if _STATE.fullmatch(path.name):
        try:
            state = decode_json(data, RankState)
        except msgspec.DecodeError as error:
            raise StoreError(f"it is not a record of perfkit: {plain_message(str(error))}") from error
        if state.schema_version != RANK_STATE_VERSION:
            raise StoreError(f"it has schema version {state.schema_version}, this perfkit reads {RANK_STATE_VERSION}")
        if state.rank < 0 or state.rank >= (state.world_size or state.rank + 1):
            raise StoreError(f"it is of rank {state.rank} of {state.world_size}")
        return state
    match = _DUMP.fullmatch(path.name)
    return read_flight_dump(data, int(match[1]) if match else 0)
