"""Records of where in a step collectives are issued, and of sharded parameters (metrics.md section 12)."""

from typing import Final, Literal, get_args

from msgspec import Struct

PassPhase = Literal["forward", "backward", "optimizer"]
PASS_PHASES: Final[tuple[PassPhase, ...]] = get_args(PassPhase)

ROOT_LAYER: Final = "(root)"
"""What the root module has gathered that none of its layers has."""
OTHER_LAYERS: Final = "(other layers)"
"""Layers beyond those that are listed, added up."""


class IssuedCollectives(Struct, frozen=True, kw_only=True, gc=False):
    """Collectives of one operator and dimension that one layer issued in one phase, summed over a rank's steps."""

    dimension: str | None
    """Dimension of parallelism that they serve; None if unknown."""
    operator: str
    phase: PassPhase | None
    """Pass in which the host issued them; None if outside of these, or unknown."""
    layer: str | None
    """Layer that issued them, by its name in the model; None if unknown."""
    count: int
    bytes: int
    """Sum of their sizes S (metrics.md section 5), as far as known."""
    unsized: int
    """Number of collectives of unknown size."""
    total_ns: int
    """Summed durations."""
    exposed_ns: int


class ParameterGathers(Struct, frozen=True, kw_only=True, gc=False):
    """All-gathers of the sharded parameters of one layer in one phase, summed over a rank's steps.

    The exposed time is the sum of the parts `late_ns` to `synchronous_ns`.
    """

    phase: PassPhase | None
    layer: str | None
    count: int
    bytes: int
    """Sum of their sizes, as far as known."""
    total_ns: int
    exposed_ns: int
    late: int
    """Number of all-gathers of which at least a tenth could have been hidden if they had been issued earlier."""
    late_ns: int
    """Exposed although compute ran before they were issued, while their queue was free."""
    queued_ns: int
    """Exposed although compute ran while they waited for earlier collectives in their queue."""
    held_ns: int
    """Exposed although compute ran after they were issued and their queue was free: they waited for earlier work."""
    first_ns: int
    """Exposed because no compute of their pass came before them."""
    short_ns: int
    """Exposed because the compute before them was too short, or hides other collectives."""
    synchronous_ns: int
    """Exposed because the host waited for them where it issued them."""
    waited_ns: int
    """Durations of those: the time that the host spent in them, whether or not a thread counts as computing."""


class ShardedParameters(Struct, frozen=True, kw_only=True):
    """Collectives of sharded parameters (FSDP) of one rank, summed over its steps."""

    gathers: list[ParameterGathers]
    """By exposed time, largest first."""
    regathered_bytes: int | None
    """Bytes gathered in a backward pass, the most of all; 0 if parameters stay gathered, None if a size is unknown."""
    reductions: int
    """Number of reductions of gradients in backward passes."""
    reductions_ns: int
    reductions_exposed_ns: int
    tail_ns: int
    """The part of it after the last compute that a pass issued before its last reduction."""


class DividedWork(Struct, frozen=True, kw_only=True):
    """Communication along one dimension that divides the work of layers; means per step and rank."""

    dimension: Literal["tp", "cp", "ep"]
    collectives: float
    """Number of them; of a ring, sends and receives."""
    bytes: float | None
    """None if a size is unknown."""
    total_ns: float
    exposed_ns: float
    compute_ns: float
    """Compute of the same steps."""
    attention_ns: float | None
    """The part of it that is attention, which could hide the ring of `cp`; None of others, or if no name tells it."""
    wait_ns: float | None
    """Waiting for other ranks in matched collectives; None if unknown."""
    tokens: int | None
    """Tokens of a rank's batch in a step; None if unknown."""
    layers: int | None
    """Layers of the model; None if unknown."""
    sequence_parallel: bool | None
    """Whether reduce_scatters have replaced most of the all_reduces of forward; None of others than `tp`."""
    imbalance: float | None
    """Tokens of the rank with the most, added up over layers, divided by those of the mean rank; None if unknown."""
