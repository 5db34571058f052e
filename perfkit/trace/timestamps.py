"""Convert decimal microseconds, as written in traces, exactly to integer nanoseconds (metrics.md section 1).

A float64 has 53 bits: at epoch scale (1.7e15 us) its spacing is 0.25 us, so a time converted through a float loses up
to hundreds of nanoseconds. The text is therefore converted digit by digit, for all events at once.
"""

import json
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

_ZERO, _NINE, _DOT, _MINUS = ord("0"), ord("9"), ord("."), ord("-")
_DIGITS = 3
"""Decimals of a microsecond down to a nanosecond."""
_SAFE_WIDTH = 18
"""Digits that always fit into int64."""
LIMIT_NS = 2**61
"""Later times (from the year 2043) are damage; a base, a start and a duration below it add up within int64."""


def to_nanoseconds(texts: Sequence[bytes | Raw]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert the JSON texts of microsecond values.

    Args:
        texts: n values as written in the file: `12`, `12.345`, `"12.3"`, `1e3`; empty if the key is missing.

    Returns:
        Nanoseconds, rounded half to even beyond three decimals, shape (n,); and a mask of the texts that are numbers
        below `LIMIT_NS`, shape (n,). The value is 0 where the mask is False.
    """
    if not texts:
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    if (uniform := _convert_uniform(texts)) is not None:
        return uniform, np.ones(len(texts), np.bool_)
    texts = [bytes(text) for text in texts]
    width = max(map(len, texts))
    # Wider than any valid number: damage, or an attack on memory (n x width bytes). Convert one by one.
    if width > 40:
        return _one_by_one(texts, np.arange(len(texts)), np.zeros(len(texts), np.int64))
    chars = np.array(texts, dtype=f"S{max(width, 1)}").view(np.uint8).reshape(len(texts), -1)
    value, regular = _digit_by_digit(chars)
    return _one_by_one(texts, np.flatnonzero(~regular), value)


def _convert_uniform(texts: Sequence[bytes | Raw]) -> NDArray[np.int64] | None:
    """Convert texts that are all integers, or all have three decimals, as one profiler writes them; else None."""
    joined = b",".join(texts) + b","
    chars = np.frombuffer(joined, np.uint8)
    marks = np.flatnonzero(chars < _ZERO)
    kinds = chars[marks].tobytes()
    decimals = _DIGITS if kinds == b".," * len(texts) else 0
    if (not decimals and kinds != b"," * len(texts)) or chars.max() > _NINE:
        return None
    gaps = np.diff(marks, prepend=-1)
    whole = gaps[::2] if decimals else gaps
    if whole.min() < 2 or whole.max() > _SAFE_WIDTH - decimals or (decimals and (gaps[1::2] != decimals + 1).any()):
        return None
    # Parses integers only: no floats involved.
    value = np.fromstring(joined.replace(b".", b""), np.int64, sep=",")
    scale = 10 ** (_DIGITS - decimals)
    return value * scale if value.max() < LIMIT_NS // scale else None


def _digit_by_digit(chars: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert plain decimals, characters of shape (n, width) padded with NUL; also return a mask of plain rows."""
    n, width = chars.shape
    value = np.zeros(n, np.int64)
    decimals = np.zeros(n, np.int64)
    digits = np.zeros(n, np.int64)
    after_dot = np.zeros(n, np.bool_)
    regular = np.ones(n, np.bool_)
    for column in range(width):
        char = chars[:, column]
        is_digit = (char >= _ZERO) & (char <= _NINE)
        is_dot = char == _DOT
        sign = (char == _MINUS) if column == 0 else np.zeros(n, np.bool_)
        regular &= is_digit | (is_dot & ~after_dot) | sign | (char == 0)
        value = np.where(is_digit & (digits < _SAFE_WIDTH), value * 10 + (char - np.uint8(_ZERO)), value)
        digits += is_digit
        decimals += is_digit & after_dot
        after_dot |= is_dot
    scale = 10 ** np.clip(_DIGITS - decimals, 0, _DIGITS)
    regular &= (digits > 0) & (decimals <= _DIGITS) & (digits <= _SAFE_WIDTH) & (value < LIMIT_NS // scale)
    value *= scale
    return np.where(chars[:, 0] == _MINUS, -value, value), regular


def _one_by_one(
    texts: Sequence[bytes], rows: NDArray[np.int64], value: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert the given rows with exact decimals, into `value`."""
    valid = np.ones(len(texts), np.bool_)
    for row in rows.tolist():
        exact = _exact(texts[row])
        valid[row] = exact is not None
        value[row] = exact or 0
    return value, valid


def _exact(text: bytes) -> int | None:
    """Return nanoseconds, or None if the text is not a number below `LIMIT_NS`."""
    try:
        plain = json.loads(text, strict=False) if text.startswith(b'"') else text.decode("ascii")
        number = Decimal(plain.encode("ascii").decode().strip())
        # Check the exponent before expanding the number: 1e999999999 must not be expanded.
        if not number.is_finite() or number.adjusted() > _SAFE_WIDTH:
            return None
        if number.adjusted() < -9:
            return 0
        nanoseconds = int((number * 1000).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError):
        return None
    return nanoseconds if abs(nanoseconds) < LIMIT_NS else None
