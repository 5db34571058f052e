"""What the operators of a rank needed, and how long they took (metrics.md section 18)."""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

WorkKind = Literal[
    "gemm",
    "attention",
    "convolution",
    "normalisation",
    "softmax",
    "embedding",
    "elementwise",
    "reduction",
    "copy",
    "optimizer",
]
MATRIX_KINDS: Final = ("gemm", "attention", "convolution")
"""Those that run on the units for matrix products."""
WORK_WORDS: Final[Mapping[WorkKind, str]] = {
    "gemm": "matrix product",
    "attention": "attention",
    "convolution": "convolution",
    "normalisation": "normalisation",
    "softmax": "softmax",
    "embedding": "embedding",
    "elementwise": "element-wise",
    "reduction": "reduction",
    "copy": "copy",
    "optimizer": "optimizer",
}
"""What the kinds are called in sentences and tables."""

NotModelled = Literal["no_model", "no_shapes", "calls_others", "no_operator"]
"""Why an operator's work is unknown: nobody has modelled it; what was recorded of its arguments does not tell; it calls
other operators, and this is its own time; or a kernel's launch was not recorded within an operator."""

OTHER_OPERATORS: Final = "(others)"
TF32: Final = "tf32"
FLOAT32_OR_TF32: Final = "float32 or tf32"


class OperatorWork(Struct, frozen=True, kw_only=True, gc=False):
    """Calls of one operator with the same shapes and types, summed over a rank's steps."""

    kind: WorkKind
    operator: str
    """As the profiler names it; `(others)` for the operators of a kind that are not listed."""
    shapes: str
    """Of its tensors, such as `64×512, 512×512`; empty for `(others)`."""
    dtype: str | None
    """Type of the elements, of a matrix product that of its factors; None if it was not recorded."""
    tensor_cores: bool | None = None
    """Whether kernels of a float32 matrix product used tensor cores (TF32); None if unknown, or not float32."""
    count: int
    total_ns: int
    """On a device the summed durations of the kernels that these calls launched; else the self time of the operators,
    with that of operators within them."""
    flops: int
    """Arithmetic operations of all calls."""
    bytes: int
    """Memory traffic of all calls, if every input is read once and every output written once."""


class UnmodelledOperator(Struct, frozen=True, kw_only=True, gc=False):
    """An operator (or, without one, a kernel) whose work is unknown."""

    operator: str
    reason: NotModelled
    count: int
    total_ns: int


class ModuleWork(Struct, frozen=True, kw_only=True, gc=False):
    """What a class of modules needs and takes, with the modules within it, summed over a rank's steps."""

    path: list[str]
    """Classes of modules from the outermost; the last is its own."""
    total_ns: int
    """Time of its compute kernels (without a device: of computing operators), backward included."""
    flops: dict[str, int]
    """Operations of matrix products, attention and convolutions by the type of the peak that they are compared with;
    `float32 or tf32` if the kernels do not tell which."""


class RankWork(Struct, frozen=True, kw_only=True):
    """The work of a rank's operators. The times of both lists add up to `total_ns` exactly."""

    total_ns: int
    """On a device the summed durations of compute kernels; else the self time of computing operators."""
    operators: list[OperatorWork]
    """By time, largest first; at most 200, and one per kind and type for all others."""
    unmodelled: list[UnmodelledOperator]
    """By time, largest first; at most 50, and one per reason for all others."""
    modules: list[ModuleWork] = []
    """By time, largest first; at most 50; empty if no modules were recorded (`with_stack`)."""
