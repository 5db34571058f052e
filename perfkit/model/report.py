"""`report.json`: the result of one analysis. A change to it, or to what it is made of, bumps `REPORT_VERSION`."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perfkit.model.run import RunReport
from perfkit.model.scaling import Scaling
from perfkit.model.shown import Plotted
from perfkit.model.terms import Finding

if TYPE_CHECKING:
    from pandas import DataFrame

    from perfkit.frames import Frames

REPORT_VERSION: Final = 1


class Insight(Struct, frozen=True, kw_only=True):
    """One sentence on where time goes that could be had back."""

    rule: str
    run: str
    """The run, or the series, that it is about."""
    sentence: str
    evidence: dict[str, float]
    """The figures it rests on, by name; times in ns, shares of one."""
    next_step: str
    gives_back_ns: float | None
    """Of a step, at most; None where that cannot be told."""


class Report(Plotted, Struct, frozen=True, kw_only=True):
    """`report.json`: the result of one analysis."""

    schema_version: int = REPORT_VERSION
    perfkit_version: str
    runs: list[RunReport]
    findings: list[Finding] = []
    """About no one run: points of a sweep that left none."""
    scaling: Scaling | None = None
    """None where no runs belong together."""
    insights: list[Insight] = []
    """At most five, by the time they would give back; what makes the others doubtful comes first."""

    def tables(self) -> "Frames":
        """Return the report's tables as pandas DataFrames."""
        # The one upward import, made only here: the records themselves know nothing of pandas.
        from perfkit.frames import frames

        return frames(self)

    @property
    def steps(self) -> "DataFrame":
        """`tables().steps`."""
        return self.tables().steps

    @property
    def collectives(self) -> "DataFrame":
        """`tables().collectives`."""
        return self.tables().collectives

    @property
    def kernels(self) -> "DataFrame":
        """`tables().operators`: kernels, and of ranks without a device host operators."""
        return self.tables().operators
