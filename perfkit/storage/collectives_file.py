"""Read a benchmark of collectives back: what `perfkit collectives -o FILE.json` writes."""

from pathlib import Path
from typing import Final

import msgspec

from perfkit.errors import StoreError
from perfkit.schema.benchmark.collectives import COLLECTIVES_VERSION, CollectiveBenchmark
from perfkit.util.json_decoding import decode_json
from perfkit.util.regular_file import read_regular
from perfkit.util.validator_messages import plain_message


class _Versioned(msgspec.Struct):
    """The part of the file that is read first."""

    schema_version: int
    measurements: list[msgspec.Raw]
    """Tells it from the other files that perfkit writes."""


_KIND: Final = "not a file of `perfkit collectives -o FILE.json`"


def load_collectives(path: str | Path) -> CollectiveBenchmark:
    """Read the JSON file of a benchmark.

    Raises:
        StoreError: The file cannot be read, is not one, contradicts itself, or has another schema version.
    """
    file = Path(path)
    try:
        data = read_regular(file)
        version = decode_json(data, _Versioned).schema_version
        if version != COLLECTIVES_VERSION:
            raise StoreError(
                f"{file}: written with schema version {version}, this perfkit reads {COLLECTIVES_VERSION}: measure "
                "again"
            )
        record = decode_json(data, CollectiveBenchmark)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: {_KIND}: {plain_message(str(error))}") from error
    _check(file, record)
    return record


def _check(file: Path, record: CollectiveBenchmark) -> None:
    known = range(len(record.series))
    for row in record.measurements:
        if row.series not in known or row.bytes < 0 or not row.time_ns > 0 or not all(ns > 0 for ns in row.samples_ns):
            raise StoreError(f"{file}: {_KIND}: a measurement has an unknown series, or no positive time")
