"""Decode JSON that may come from anybody."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_json(data: bytes, record: type[T]) -> T:
    """Decode JSON into a record.

    Raises:
        msgspec.DecodeError: It is not JSON, not of this type, or nested too deeply.
    """
    try:
        return msgspec.json.decode(data, type=record)
    except (RecursionError, UnicodeDecodeError, MemoryError) as error:
        raise msgspec.DecodeError(str(error) or type(error).__name__) from error
