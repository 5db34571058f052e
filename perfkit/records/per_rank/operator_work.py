"""The work of operators of known shapes, and its sums over calls, traces and ranks: a limited number of rows."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, Literal

from msgspec import Struct

from perfkit.records.sums import add_largest, add_rows, sums_of

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


MOST_OPERATORS: Final = 200
"""Most operators with their shapes that are listed, besides one row per kind and type for all others."""
MOST_UNMODELLED: Final = 50
"""Most operators without a model that are listed, besides one row per reason for all others."""

MOST_MODULES: Final = 50
MOST_WORK: Final = 2**63 - 1
"""A sum beyond it is damage; it would not fit the column of a file."""


def add_operator_work(rows: Iterable[OperatorWork]) -> list[OperatorWork]:
    """Return one row per operator, shapes and type, largest time first; of many, the smaller are added by kind."""
    return add_largest(
        rows,
        attrgetter("kind", "operator", "shapes", "dtype", "tensor_cores"),
        ("count", "total_ns"),
        lambda group: {name: min(work, MOST_WORK) for name, work in sums_of(group, ("flops", "bytes")).items()},
        most=MOST_OPERATORS,
        order=lambda row: (-row.total_ns, row.operator, row.shapes, row.dtype or ""),
        rest={"operator": OTHER_OPERATORS, "shapes": ""},
    )


def add_unmodelled(rows: Iterable[UnmodelledOperator]) -> list[UnmodelledOperator]:
    """Return one row per operator and reason, largest time first; of many, the smaller are added by reason."""
    return add_largest(
        rows,
        attrgetter("operator", "reason"),
        ("count", "total_ns"),
        most=MOST_UNMODELLED,
        order=lambda row: (-row.total_ns, row.operator),
        rest={"operator": OTHER_OPERATORS},
    )


def add_modules(rows: Iterable[ModuleWork]) -> list[ModuleWork]:
    """Return one row per path of modules, largest time first; of many, the largest."""

    def flops(group: Sequence[ModuleWork]) -> dict[str, dict[str, int]]:
        names = dict.fromkeys(name for row in group for name in row.flops)
        return {"flops": {name: min(sum(row.flops.get(name, 0) for row in group), MOST_WORK) for name in names}}

    added = add_rows(rows, lambda row: tuple(row.path), ("total_ns",), flops)
    return sorted(added, key=lambda row: (-row.total_ns, row.path))[:MOST_MODULES]


def add_rank_work(works: Iterable[RankWork | None]) -> RankWork | None:
    """Return the work of several traces or ranks; None if it is unknown for any, or there are none."""
    listed = list(works)
    known = [work for work in listed if work is not None]
    if not known or len(known) < len(listed):
        return None
    return RankWork(
        total_ns=sum(work.total_ns for work in known),
        operators=add_operator_work(row for work in known for row in work.operators),
        unmodelled=add_unmodelled(row for work in known for row in work.unmodelled),
        modules=add_modules(row for work in known for row in work.modules),
    )
