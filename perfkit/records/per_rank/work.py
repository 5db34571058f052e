"""Records of attributed time: module, Python function, operator, phase (metrics.md section 20)."""

from typing import Final, Literal, get_args

from msgspec import Struct

WorkPhase = Literal["forward", "backward", "optimizer", "other", "unknown"]
WORK_PHASES: Final[tuple[WorkPhase, ...]] = get_args(WorkPhase)

WorkView = Literal["module", "class", "python", "operator"]
WORK_VIEWS: Final[tuple[WorkView, ...]] = get_args(WorkView)

KernelClass = Literal[
    "gemm",
    "attention",
    "convolution",
    "normalisation",
    "embedding",
    "reduction",
    "elementwise",
    "optimizer",
    "copy",
    "communication",
    "other",
]
KERNEL_CLASSES: Final[tuple[KernelClass, ...]] = get_args(KernelClass)

UNKNOWN: Final = "(unknown)"
"""Work whose launch, or whose forward operator, is not in the trace."""
OUTSIDE: Final = "(outside)"
"""Work that no module, function or operator was running at."""
OTHERS: Final = "(others)"
"""Children of a node that are not listed, added up."""


class WorkPart(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Work of one phase, summed over a rank's steps."""

    phase: WorkPhase
    count: int
    total_ns: int
    exposed_ns: int = 0
    communication_bytes: int = 0


class WorkNode(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A node of a tree of work: everything but `self_ns` includes the nodes below it."""

    depth: int
    """0 for roots; a node's children follow it with one more."""
    name: str
    count: int = 0
    """Kernels and copies; without a device, operators."""
    total_ns: int = 0
    """Their time on the device; without a device, their self time on the host."""
    self_ns: int = 0
    """The part of it that is of no node below."""
    forward_ns: int = 0
    backward_ns: int = 0
    exposed_ns: int = 0
    """The part in which no category before theirs ran, and no earlier one of their own (metrics.md section 4)."""
    communication_bytes: int = 0
    max_ns: int = 0
    """The longest kernel or copy of it and of the nodes below; without a device, the largest self time of an operator.
    0 if there is none, and in the tree by operator, whose operators have their own rows."""
    max_step: int | None = None
    """Step of the longest one."""
    max_at_ns: int | None = None
    """Its start, since that of the step's window; None if unknown."""


class WorkTree(Struct, frozen=True, kw_only=True):
    """One view of a rank's work; the roots add up to all of it."""

    by: WorkView
    nodes: list[WorkNode]
    """In depth-first order, the children of each by time, largest first; of many the 60 largest, and `(others)`."""


class KernelWork(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Kernels (without a device: operators) of one name that one operator launched with the same inputs."""

    name: str
    """As in the trace."""
    kernel_class: KernelClass
    operator: str | None = None
    """Innermost operator at the launch; None if unknown."""
    inputs: str | None = None
    """Its `Input Dims`, as text of JSON; None if not recorded (`record_shapes`)."""
    count: int = 0
    total_ns: int = 0
    max_ns: int = 0
    grid: tuple[int, int, int] | None = None
    """Blocks of the launch, if it is the same for all."""
    occupancy_percent: float | None = None
    """kineto's estimate, if it is the same for all."""


class ClassWork(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Work of one class of kernels or operators, summed over a rank's steps."""

    kernel_class: KernelClass
    count: int
    total_ns: int
    exposed_ns: int = 0


class Work(Struct, frozen=True, kw_only=True):
    """A rank's time by what it is attributed to, summed over its steps."""

    on: Literal["device", "host"]
    """`device`: time of kernels and copies; `host`: without a device, self time of operators."""
    count: int
    total_ns: int
    exposed_ns: int
    """Exclusive time of compute, communication and copies; 0 without a device."""
    communication_bytes: int
    phases: list[WorkPart]
    """Those that have work, in the order of a step."""
    trees: list[WorkTree]
    """Without those that the trace has nothing for."""
    classes: list[ClassWork] = []
    """By time, largest first."""
    kernels: list[KernelWork] = []
    """By time, largest first; at most 30."""
    has_modules: bool = False
    """Whether calls of modules were recorded (`with_stack`)."""
    has_module_names: bool = False
    """Whether the trace's header has the modules' qualified names, as perfkit records them: trees then name modules
    `layers.0.attn (Attention)`, and by class `layers.*.attn (Attention)`."""
