"""Types of tensor elements: one name and size for each of the spellings that torch uses."""

from collections.abc import Sequence
from math import prod
from typing import Final

DTYPES: Final = {
    spelling: (name, size)
    for name, size, spellings in (
        ("float64", 8, ("double",)),
        ("float32", 4, ("float",)),
        ("float16", 2, ("half", "c10::half")),
        ("bfloat16", 2, ("c10::bfloat16",)),
        ("float8_e4m3fn", 1, ()),
        ("float8_e4m3fnuz", 1, ()),
        ("float8_e5m2", 1, ()),
        ("float8_e5m2fnuz", 1, ()),
        ("float8_e8m0fnu", 1, ()),
        ("complex128", 16, ("c10::complex<double>", "complexdouble")),
        ("complex64", 8, ("c10::complex<float>", "complexfloat")),
        ("int64", 8, ("long", "long int")),
        ("int32", 4, ("int",)),
        ("int16", 2, ("short", "short int")),
        ("int8", 1, ("char", "signed char")),
        ("uint8", 1, ("byte", "unsigned char")),
        ("bool", 1, ()),
    )
    for spelling in (name, *spellings)
}
"""Name and bytes per element, by spelling in lower case."""


def tensor_bytes(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> int | None:
    """Return the bytes of several tensors together; None if a type is unknown."""
    total = 0
    for shape, dtype in zip(shapes, dtypes, strict=False):
        if dtype.lower() not in DTYPES:
            return None
        total += prod(shape) * DTYPES[dtype.lower()][1]
    return total
