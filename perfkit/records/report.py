"""`report.json`: the result of one analysis. A change to it or to a record in it bumps `REPORT_VERSION`."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perfkit.records.common import Finding
from perfkit.records.display import RunPlots
from perfkit.records.kernel_rules import KernelRuleUse
from perfkit.records.per_run.ledger import LedgerCause
from perfkit.records.run import RunReport
from perfkit.records.scaling import MultiRunSummary

if TYPE_CHECKING:
    from pandas import DataFrame

    from perfkit.report.dataframes import DataFrames

REPORT_VERSION: Final = 3
BESIDES_STEPS: Final = "pauses"
"""The rule of recommendations whose saving is besides the steps, not a part of them."""


class Insight(Struct, frozen=True, kw_only=True):
    """One recommendation: where time is lost, and what could save it."""

    rule: str
    row: LedgerCause | None = None
    """The row of the run's ledger that it is about; None for comparisons of runs, and what is besides the steps."""
    run: str
    """Name of the run or the series."""
    sentence: str
    evidence: dict[str, float]
    """The values it is based on, by name; times in ns, shares as fractions of one."""
    recommendation: str
    potential_saving_ns: float | None
    """Per step, in the time of the ledger: by replay where there is a graph and a change to replay, else an upper
    bound; None if unknown."""
    predicted_for: str | None = None
    """The change, as `perfkit whatif` takes it, that the saving was predicted for by replay; None for a bound."""
    only_finds_out: bool = False
    """Whether the recommendation only leads to the reason: `potential_saving_ns` is then the time that it is about."""


class Report(RunPlots, Struct, frozen=True, kw_only=True):
    """`report.json`: the result of one analysis."""

    schema_version: int = REPORT_VERSION
    perfkit_version: str
    runs: list[RunReport]
    findings: list[Finding] = []
    """Findings about no single run: sweep points without a run, failed plug-ins."""
    multi_run: MultiRunSummary | None = None
    """None unless several runs form a series or a comparison."""
    insights: list[Insight] = []
    """At most five, by potential saving; one that casts doubt on the others comes first."""
    kernel_rules: list[KernelRuleUse] = []
    """What each rule of `--kernel-rules` did."""

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
        """`tables().operators`: kernels, or host operators of ranks without a device."""
        return self.tables().operators
