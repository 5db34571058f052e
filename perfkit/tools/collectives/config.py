"""Options of `perfkit collectives`, its operators and its message sizes. Without torch."""

from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct

from perfkit.base.parsing import parse_names, parse_size
from perfkit.errors import UsageError
from perfkit.options.help_groups import COMMON
from perfkit.options.mesh import MeshLayout, lay_out
from perfkit.options.recording import TIMEOUT
from perfkit.options.run import RunConfig, choices_by_accelerator


class Operation(NamedTuple):
    """How an operator uses its memory, and what its results are."""

    operator: str
    """As in traces, for the factors of bandwidth."""
    divided: bool
    """Whether its size is the total of equal parts of the ranks."""
    in_place: bool
    """Whether input and output can share memory."""
    out_of_place: bool = True
    """Whether they can be apart."""


OPERATIONS: Final[dict[str, Operation]] = {
    "all_reduce": Operation("all_reduce", divided=False, in_place=True, out_of_place=False),
    "all_gather": Operation("all_gather", divided=True, in_place=True),
    "reduce_scatter": Operation("reduce_scatter", divided=True, in_place=True),
    "all_to_all": Operation("all_to_all", divided=True, in_place=False),
    "broadcast": Operation("broadcast", divided=False, in_place=True, out_of_place=False),
    "reduce": Operation("reduce", divided=False, in_place=True, out_of_place=False),
    "gather": Operation("gather", divided=True, in_place=False),
    "scatter": Operation("scatter", divided=True, in_place=False),
    "send_recv": Operation("send_recv", divided=False, in_place=False),
    "send_recv_pairs": Operation("send_recv", divided=False, in_place=False),
    "barrier": Operation("barrier", divided=False, in_place=False),
}
"""torch's all_reduce, broadcast and reduce have one tensor for input and output; its others have two, which may
overlap in all_gather and reduce_scatter."""

SIZELESS: Final = "barrier"
"""The operator without a message."""


DTYPE_NAMES: Final = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8")
"""The types of elements that can be measured."""

OVERLAP_FROM_BYTES: Final = 1 << 16
"""Smaller collectives are not measured beside computation: issuing them takes as long as they do."""

Place = Literal["out", "in", "both"]
_Count = Annotated[int, Meta(ge=1)]


class CollectivesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the benchmark, checked on construction."""

    operators: Annotated[
        str | None,
        COMMON,
        Meta(
            description=f"Operators, separated by commas: {', '.join(OPERATIONS)} [default: all; with --pairs: none]."
        ),
    ] = None
    min_size: Annotated[str, COMMON, Meta(description="Smallest message: bytes, 64K, 4MiB (powers of 1024), 4MB.")] = (
        "8"
    )
    max_size: Annotated[str, COMMON, Meta(description="Largest message.")] = "64M"
    factor: Annotated[int, Meta(ge=2, description="Ratio of each message's size to that of the one before.")] = 2
    dtype: Annotated[str, Meta(description=f"Types of elements, separated by commas: {', '.join(DTYPE_NAMES)}.")] = (
        "float32"
    )
    mesh: Annotated[
        str | None,
        COMMON,
        Meta(
            description="Measure in the groups of a mesh, for example dp=2,tp=2: one group of each dimension alone, "
            "and all of them at once [default: all ranks are one group]."
        ),
    ] = None
    place: Annotated[
        Place,
        Meta(
            description="Whether input and output share memory in all_gather and reduce_scatter. In all_reduce, "
            "broadcast and reduce they always do, in the others never."
        ),
    ] = "out"
    concurrent: Annotated[
        int, Meta(ge=1, le=64, description="Collectives of a group that are in flight at the same time.")
    ] = 1
    overlap: Annotated[
        bool,
        Meta(description="Also measure collectives from 64 KiB beside a matrix multiplication that takes as long."),
    ] = False
    pairs: Annotated[
        bool, COMMON, Meta(description="Send messages between every two ranks, to find slow pairs, ranks and hosts.")
    ] = False
    warmup: Annotated[int, Meta(ge=0, description="Calls before each sample.")] = 1
    repeats: Annotated[
        int, Meta(ge=1, le=10_000, description="Samples of each measurement: how often everything is repeated.")
    ] = 10
    device: Annotated[str, Meta(description="Device whose memory contains the messages.")] = "auto"
    backend: Annotated[str, Meta(description="Communication backend; auto selects it by the device.")] = "auto"
    timeout: Annotated[
        str, Meta(description=f"{TIMEOUT}: at start-up once torch is imported, and in every collective.")
    ] = "2m"
    threads: Annotated[_Count | None, Meta(description="CPU threads per rank [default: cores / local ranks].")] = None

    def __post_init__(self) -> None:
        for option, choices in choices_by_accelerator().items():
            if getattr(self, option) not in choices:
                raise UsageError(f"--{option} {getattr(self, option)}: choose from {', '.join(choices)}")
        if self.smallest > self.largest:
            raise UsageError(f"--min-size {self.min_size} is larger than --max-size {self.max_size}")
        _ = self.run_config, self.dtypes
        self._refuse_unused_options()
        if self.place != "out":
            self._check_place()

    @property
    def smallest(self) -> int:
        """Bytes of the smallest message."""
        return parse_size(self.min_size, "--min-size")

    @property
    def largest(self) -> int:
        """Bytes of the largest message."""
        return parse_size(self.max_size, "--max-size")

    @property
    def names(self) -> list[str]:
        """The operators to measure.

        Raises:
            UsageError: One is unknown.
        """
        if self.operators is None:
            return [] if self.pairs else list(OPERATIONS)
        return parse_names(self.operators, list(OPERATIONS), "--operators")

    @property
    def dtypes(self) -> list[str]:
        """The types of elements.

        Raises:
            UsageError: One is unknown.
        """
        return parse_names(self.dtype, DTYPE_NAMES, "--dtype")

    @property
    def run_config(self) -> RunConfig:
        """The options that a training run has as well, for joining the process group."""
        return RunConfig(
            mesh=self.mesh,
            device=self.device,
            backend=self.backend,
            timeout=self.timeout,
            threads=self.threads,
            profile=False,
            trace_dir=".",  # where the ranks of a Slurm step find each other
        )

    def layout(self, world_size: int) -> MeshLayout | None:
        """Return the mesh of `world_size` ranks; None without one.

        Raises:
            UsageError: The mesh has another number of ranks, or no dimension has two.
        """
        if self.mesh is None:
            return None
        layout = lay_out(self.mesh, world_size)
        if all(size == 1 for size in layout.sizes.values()):
            raise UsageError(f"--mesh {self.mesh}: no dimension has two ranks")
        return layout

    def check_world(self, world_size: int) -> None:
        """Refuse too few ranks, and a mesh of another number of ranks.

        Raises:
            UsageError: The message contains what to change.
        """
        if world_size < 2:
            raise UsageError("one rank has no other to communicate with: start two or more (-n 2, mpiexec, torchrun)")
        self.layout(world_size)

    def _refuse_unused_options(self) -> None:
        names = self.names
        if not names:
            for option, given in (("overlap", self.overlap), ("mesh", self.mesh), ("concurrent", self.concurrent > 1)):
                if given:
                    raise UsageError(f"--{option} has no effect with --pairs alone: name --operators, or remove it")
        if self.overlap and self.concurrent > 1:
            raise UsageError("--overlap measures one collective at a time: remove --concurrent")
        if self.overlap and (set(names) == {SIZELESS} or self.largest < OVERLAP_FROM_BYTES):
            raise UsageError("--overlap measures messages from 64 KiB: raise --max-size, or remove it")

    def _check_place(self) -> None:
        if self.operators is None:
            return
        for name in self.names:
            operation = OPERATIONS[name]
            if not (operation.in_place and operation.out_of_place):
                always = "always share memory" if operation.in_place else "cannot share memory"
                raise UsageError(f"--place {self.place}: input and output of {name} {always}: remove it or --place")


def in_place_forms(name: str, place: Place) -> list[bool]:
    """Return which forms of an operator to measure: False for separate input and output, True for shared memory."""
    operation = OPERATIONS[name]
    if not operation.out_of_place:
        return [True]
    if not operation.in_place:
        return [False]
    return {"out": [False], "in": [True], "both": [False, True]}[place]


class Message(NamedTuple):
    """The size of a collective: S of metrics.md section 5, and its elements."""

    bytes: int
    elements: int
    per_rank: int
    """Elements of one rank's part, where parts of ranks are put together; otherwise all elements."""


def messages(smallest: int, largest: int, factor: int, item_bytes: int, parts: int) -> list[Message]:
    """Return the distinct messages from `smallest` to `largest` bytes, each `factor` times the one before.

    Args:
        smallest: Bytes.
        largest: Bytes.
        factor: At least 2.
        item_bytes: Bytes of an element.
        parts: Number of ranks among which the elements are divided; 1 if they are not. Sizes are rounded down to a
            multiple, but to no less than one element per rank.
    """
    found: dict[int, Message] = {}
    size = smallest
    while size <= largest:
        per_rank = max(1, size // (item_bytes * parts))
        elements = per_rank * parts
        found.setdefault(elements, Message(elements * item_bytes, elements, per_rank))
        size *= factor
    return list(found.values())
