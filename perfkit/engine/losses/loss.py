"""What a subject costs a run: a loss, as facts of which the report makes words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from perfkit.engine.losses.context import LossContext
from perfkit.records.facts import Facts
from perfkit.records.per_run.ledger import LedgerCause, LedgerRow


class Loss(Struct, frozen=True, kw_only=True):
    """Time that a run loses: to what, where, how much, and what would remove it. Facts only."""

    cause: str
    facts: Facts
    """What its sentence is made of; of a loss on a row of the ledger, which names it and its size, only why."""
    row: LedgerCause | LedgerRow | None = None
    """The row of the ledger that it is on, by its cause unless there are several of it; None if it is on none. A loss
    whose row is small is none."""
    remedy: Facts
    """What to try; what its words are made of."""
    per_step_ns: float | None
    """Upper bound of the saving; None if unknown, which also ranks the loss first."""
    evidence: dict[str, float] = {}
    """The figures it rests on, by name; times in ns, shares as fractions of one."""
    ranks: tuple[int, ...] = ()
    """The ranks it is on; empty for all."""
    steps: tuple[int, ...] = ()
    """The steps it is in; empty for all."""
    phase: str | None = None
    """The phase of the step."""
    code: str | None = None
    """The module, function, operator or line of code."""
    change: str | None = None
    """The change, as `perfkit whatif` takes it, whose predicted saving replaces the bound if the run has it."""
    blames: Literal["storage", "network", "rank"] | None = None
    """What outside the program's own work it is put down to; on a busy machine it may be other processes, and there is
    no such loss."""
    only_finds_out: bool = False
    """Whether the remedy only leads to the reason: then the bound is the time that it is about, no promise."""
    explains_all: bool = False
    """Whether no later rule is evaluated, because what these look at may follow from it. Ranks that are late beyond
    chance do not: with these all rules are evaluated."""


Rules = Mapping[str, Callable[[LossContext], Loss | Sequence[Loss] | None]]
"""The rules of a subject by the name of what they find; each returns None, or nothing, if it does not apply to the
run."""
