"""`report.json`: the result of one analysis. A change to it, or to what it is made of, bumps `REPORT_VERSION`."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perfkit.schema.common import Finding
from perfkit.schema.display import RunPlots
from perfkit.schema.run import RunReport
from perfkit.schema.scaling import MultiRunSummary

if TYPE_CHECKING:
    from pandas import DataFrame

    from perfkit.report.dataframes import DataFrames

REPORT_VERSION: Final = 2


class Insight(Struct, frozen=True, kw_only=True):
    """One sentence on where time goes that could be had back."""

    rule: str
    run: str
    """The run, or the series, that it is about."""
    sentence: str
    evidence: dict[str, float]
    """The figures it rests on, by name; times in ns, shares of one."""
    recommendation: str
    potential_saving_ns: float | None
    """Of a step, at most; None where that cannot be told."""


class Report(RunPlots, Struct, frozen=True, kw_only=True):
    """`report.json`: the result of one analysis."""

    schema_version: int = REPORT_VERSION
    perfkit_version: str
    runs: list[RunReport]
    findings: list[Finding] = []
    """About no one run: points of a sweep that left none."""
    multi_run: MultiRunSummary | None = None
    """None where no runs belong together."""
    insights: list[Insight] = []
    """At most five, by the time they would give back; what makes the others doubtful comes first."""

    def tables(self) -> "DataFrames":
        """Return the report's tables as pandas DataFrames."""
        tables: DataFrames = self._tables()
        return tables

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
