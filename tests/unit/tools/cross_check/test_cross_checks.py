"""Cross-checks by name: a tool's figures, or why they are missing."""

import pytest

from perfkit.errors import ExternalToolError, LaunchEnvironmentError, UsageError
from perfkit.plugins import Registry
from perfkit.records.run import CrossCheck, RunReport
from perfkit.tools.cross_check import CROSS_CHECKS, CrossCheckTool, with_cross_check
from perfkit.tools.cross_check.hta import HTA
from tests.support.reports.report_builders import make_rank, make_run

FIGURES = CrossCheck(tool="other 1.0", rows=[])


def failing(error: Exception) -> CrossCheckTool:
    def run(_: RunReport) -> CrossCheck:
        raise error

    return CrossCheckTool(check_installed=lambda: None, run=run)


TOOLS = {
    "works": CrossCheckTool(check_installed=lambda: None, run=lambda _: FIGURES),
    "fails": failing(ExternalToolError("run: other 1.0 failed")),
    "breaks": failing(KeyError("rank")),
    "missing": failing(LaunchEnvironmentError("other is not installed")),
}


class Registered(Registry[CrossCheckTool]):
    """A registry whose tools are another package's."""

    def __init__(self) -> None:
        super().__init__("perfkit.cross_checks", "cross-check", {}, lambda *_: None)

    def origin(self, name: str) -> str:
        return "other 1.0"

    def load(self, name: str) -> CrossCheckTool:
        return TOOLS[name]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.tools.cross_check.CROSS_CHECKS", Registered())


RUN = make_run(ranks=[make_rank(0)])


def test_hta_is_built_in() -> None:
    assert CROSS_CHECKS.names()[0] == "hta"
    assert CROSS_CHECKS.load("hta") is HTA
    with pytest.raises(UsageError, match="unknown cross-check 'hat': choose from hta"):
        CROSS_CHECKS.load("hat")


@pytest.mark.usefixtures("registered")
def test_the_figures_stand_in_the_report() -> None:
    assert with_cross_check(RUN, "works").cross_check == FIGURES
    assert with_cross_check(make_run(ranks=[]), "works").cross_check is None


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("name", "why"), [("fails", "run: other 1.0 failed"), ("breaks", "KeyError: 'rank'")])
def test_a_failure_is_a_finding(name: str, why: str) -> None:
    run = with_cross_check(RUN, name)
    assert run.cross_check is None
    assert run.findings[-1].code == "cross_check_failed"
    assert why in run.findings[-1].message


@pytest.mark.usefixtures("registered")
def test_a_missing_tool_is_an_error() -> None:
    with pytest.raises(LaunchEnvironmentError):
        with_cross_check(RUN, "missing")
