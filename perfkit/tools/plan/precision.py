"""Bytes of one entry by precision: what `perfkit run` holds, and what the literature counts with."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

FLOAT32_BYTES: Final = 4


class Precision(Struct, frozen=True, kw_only=True):
    """Bytes per parameter and per activation."""

    parameter: int
    gradient: int
    optimizer: int
    """Adam: two moments, and a float32 copy of the parameter where it is kept in 16 bits."""
    gathered: int
    """Of a parameter that is gathered from its parts."""
    activation: int
    """Of what matrices read and write."""
    residual: int
    """Of the stream between the blocks."""
    casts: bool
    """Whether parameters are cast to `activation` bytes in the forward pass (autocast)."""
    matmul_dtypes: tuple[str, ...]
    """Data types of matrix products, as device tables name them; the first that a device has."""
    source: str


_FLOAT32: Final = Precision(
    parameter=4,
    gradient=4,
    optimizer=8,
    gathered=4,
    activation=4,
    residual=4,
    casts=False,
    matmul_dtypes=("float32",),
    source="metrics.md section 11: everything in float32",
)
_BFLOAT16: Final = replace(
    _FLOAT32,
    gathered=2,
    activation=2,
    casts=True,
    matmul_dtypes=("bfloat16",),
    source="metrics.md section 11: parameters in float32, computed in 16 bits (torch.autocast)",
)
_MIXED: Final = Precision(
    parameter=2,
    gradient=2,
    optimizer=12,
    gathered=2,
    activation=2,
    residual=2,
    casts=False,
    matmul_dtypes=("bfloat16", "float16"),
    source="Rajbhandari et al., 'ZeRO' (2020), section 3.1: 2 Psi + 2 Psi + K Psi with K = 12 for Adam",
)
_MEGATRON: Final = replace(
    _MIXED,
    gradient=4,
    source="Megatron-LM, guide to its distributed optimizer: 2 + 4 + 12 bytes, gradients added up in float32",
)
_FP8: Final = replace(
    _MEGATRON,
    casts=True,
    matmul_dtypes=("float8_e4m3fn", "float8_e4m3fnuz"),
    source="as megatron; of each matrix a copy in 8 bits and its transpose (NVIDIA Transformer Engine); activations "
    "are counted in 16 bits, an upper bound",
)
PRECISIONS: Final = {
    "float32": _FLOAT32,
    "bfloat16": _BFLOAT16,
    "float16": replace(_BFLOAT16, matmul_dtypes=("float16",)),
    "mixed": _MIXED,
    "megatron": _MEGATRON,
    "fp8": _FP8,
    "half": replace(_MIXED, optimizer=4, source="everything in 16 bits, Adam's two moments too"),
}
