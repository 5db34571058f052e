"""Read a benchmark back: what `perfkit collectives` or `perfkit input` wrote with `-o FILE.json`."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from perfkit.errors import StoreError
from perfkit.schema.benchmark.collectives import COLLECTIVES_VERSION, CollectiveBenchmark, PairTime
from perfkit.schema.benchmark.input import INPUT_VERSION, InputBenchmark
from perfkit.util.json_decoding import decode_json
from perfkit.util.regular_file import read_regular
from perfkit.util.validator_messages import plain_message

RecordT = TypeVar("RecordT")


class _Versioned(msgspec.Struct):
    """The part of the file that is read first."""

    schema_version: int
    measurements: list[msgspec.Raw]
    """Tells it from the other files that perfkit writes."""


def load_collectives(path: str | Path) -> CollectiveBenchmark:
    """Read the JSON file of a benchmark of collectives.

    Raises:
        StoreError: The file cannot be read, is not one, contradicts itself, or has another schema version.
    """
    return _load(Path(path), CollectiveBenchmark, COLLECTIVES_VERSION, "collectives", _is_sound)


def load_input(path: str | Path) -> InputBenchmark:
    """Read the JSON file of a benchmark of input.

    Raises:
        StoreError: The file cannot be read, is not one, contradicts itself, or has another schema version.
    """
    return _load(Path(path), InputBenchmark, INPUT_VERSION, "input", _is_sound_input)


def _load(
    file: Path, record: type[RecordT], version: int, command: str, is_sound: Callable[[RecordT], bool]
) -> RecordT:
    kind = f"not a file of `perfkit {command} -o FILE.json`"
    try:
        data = read_regular(file)
        written = decode_json(data, _Versioned).schema_version
        if written != version:
            raise StoreError(
                f"{file}: written with schema version {written}, this perfkit reads {version}: measure again"
            )
        found = decode_json(data, record)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: {kind}: {plain_message(str(error))}") from error
    if not is_sound(found):
        raise StoreError(f"{file}: {kind}: a measurement has an unknown series or rank, or no positive time")
    return found


def _is_sound(record: CollectiveBenchmark) -> bool:
    known = range(len(record.series))
    return (
        all(
            row.series in known and row.bytes >= 0 and row.time_ns > 0 and all(ns > 0 for ns in row.samples_ns)
            for row in record.measurements
        )
        and all(one.series in known for one in record.fits)
        and len(record.hosts) == len(record.cores) == record.world_size
        and all(_is_sound_pair(pair, record.world_size) for pair in (record.pairs.pairs if record.pairs else ()))
    )


def _is_sound_pair(pair: PairTime, world_size: int) -> bool:
    low, high = sorted(pair.ranks)
    return 0 <= low < high < world_size and min(pair.latency_ns, pair.time_ns, pair.bandwidth) > 0


def _is_sound_input(record: InputBenchmark) -> bool:
    known = range(len(record.series))
    return all(
        row.series in known
        and row.passes
        and min(row.load_ns, row.median_ns, row.p99_ns) > 0
        and all(min(one.load_ns, one.median_ns, one.p99_ns) > 0 for one in row.passes)
        for row in record.measurements
    )
