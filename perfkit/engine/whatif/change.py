"""A change of a run: how it is written, what it does to the graph of steps, and why it cannot be made."""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple, Self

from msgspec import Struct

from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import Altered
from perfkit.errors import UsageError
from perfkit.records.facts import Fact, Facts
from perfkit.records.run import RunReport


class ChangeError(UsageError):
    """Why a change cannot be read, or predicted; `perfkit.report.wording.whatif` has the words of its fact."""

    def __init__(self, why: Fact, change: str = "") -> None:
        super().__init__(why.name)
        self.why = why
        self.change = change
        """As given; empty for several."""


class Effect(NamedTuple):
    """A graph after a change."""

    state: Altered
    applies_to: Facts
    """What of the run the change applies to."""
    assumptions: list[Fact]


class ChangedRun(NamedTuple):
    """A run to which a change is made, after those before it."""

    state: Altered
    report: RunReport
    healthy: frozenset[int] = frozenset()
    """Ranks that the changes together make healthy: they are no measure for each other."""

    @property
    def graph(self) -> StepGraph:
        """The graph with the dependencies that are left."""
        return self.state.graph


class Change(Struct, frozen=True):
    """One change. A subclass is one kind of change."""

    example: ClassVar[str]
    """How it is written."""
    help: ClassVar[str]
    """What it changes, in a line of `perfkit whatif --help-all`."""
    examples: ClassVar[str] = ""
    """How that line shows it, if not by `example`."""
    subject: ClassVar[str]
    """Pattern of what is left of the last `=`; its group is what the change applies to."""
    tried: ClassVar[tuple[str, ...]] = ()
    """What of this kind is tried where no change is given."""
    is_single: ClassVar[bool] = False
    """Whether two of this kind contradict each other."""

    @classmethod
    def read(cls, name: str, value: str) -> Self:
        """Return the change of a `name`, what the group matched, and of what is right of the `=`.

        Raises:
            ChangeError: the value is not what is expected.
        """
        raise NotImplementedError

    @classmethod
    def candidates(cls, graph: StepGraph, run: RunReport) -> Iterator[str]:  # noqa: ARG003
        """Yield the changes of this kind that are tried where none is given; not all of them need apply."""
        yield from cls.tried

    def apply(self, run: ChangedRun) -> Effect:
        """Make the change.

        Raises:
            ChangeError: it applies to nothing, or cannot be predicted from these traces.
        """
        raise NotImplementedError
