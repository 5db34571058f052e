"""Display of records in Jupyter, and their charts."""

import io
from pathlib import Path

import pytest

from perfkit.errors import UsageError
from perfkit.pipeline.compare import compare
from perfkit.pipeline.whatif import predict
from perfkit.records.run import RunReport
from perfkit.report.charts.run import subject_charts
from perfkit.report.renderers import answer
from perfkit.report.wording import worded
from perfkit.subjects.comparison.history import config_histories
from perfkit.tools.plan.planner import Request, make_plan
from perfkit.tools.plan.shape import gpt_shape
from tests.support.documentation import ROOT
from tests.support.reports.report_builders import make_foreign_run, make_report, make_run
from tests.unit.report.test_html import read


def test_a_report_shows_its_runs_closed_and_one_run_open() -> None:
    several = make_report(make_run("one"), make_run("two"))._repr_html_()
    assert several.count("<details>\n<summary><strong>") == 2
    for whole in (make_report(make_run("one"))._repr_html_(), make_run("one")._repr_html_()):
        assert whole.count("<details open>\n<summary><strong>") == 1
        assert "No single large loss: 60 % is compute." in whole
        assert "Where the step&#39;s time goes" in whole
    assert len(several) < 50_000


def test_formulas_in_names_are_not_typeset() -> None:
    """Jupyter typesets `$…$` in what a cell shows, except in elements of these classes (MathJax 2, and 3)."""
    for shown in (make_report(), make_run(r"$\href{https://evil.example}{x}$")):
        _, attributes = read(shown._repr_html_()).tags[0]
        assert {"tex2jax_ignore", "mathjax_ignore"} <= set((attributes["class"] or "").split())


def test_a_report_of_very_many_runs_shows_the_first() -> None:
    shown = make_report(*(make_run(f"run-{number}") for number in range(25)))._repr_html_()
    assert shown.count("<summary><strong>run-") == 20
    assert "5 more are not shown." in shown


def test_print_shows_the_short_answer_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    report, screen = make_report(), io.StringIO()
    answer.write(report, screen, top=10, width=80)
    assert [line.rstrip() for line in screen.getvalue().rstrip().splitlines()] == str(report).splitlines()
    assert str(report) == repr(report)
    (run,) = report.runs
    assert str(run).splitlines()[:3] == str(report).splitlines()[:3]
    assert len(repr(run.ranks[0])) < 100
    hostile = make_report(make_run("\x1b[31mtwo"))
    assert r"\x1b[31mtwo ──" in repr(hostile)


def test_print_shows_what_stands_before_the_tables_of_other_records() -> None:
    trace = str(ROOT / "traces" / "sample-hdf5")
    shape = gpt_shape(name="gpt", layers=32, width=4096, heads=32, block=2048, vocabulary=32_000, bias=False)
    records = {
        "No change: ": compare(trace, trace),
        "1 run: at least 8 are needed": worded(config_histories([make_run(started_at="2026-01-01T00:00:00Z")], "run")),
        "With input=0, the ": predict(trace, ["input=0"]),
        "No layout is selected.": make_plan(Request(shape=shape, ranks=16, global_batch=64, precision="bfloat16")),
    }
    for headline, record in records.items():
        shown = str(record)
        assert headline in shown
        assert len(shown) < 2_000
        assert shown.count("─\n") == 1  # the title's; no table


def test_a_history_of_very_many_configurations_shows_the_first() -> None:
    runs = [make_run(str(n), started_at="2026-01-01T00:00:00Z", config={"batch_size": n}) for n in range(1, 26)]
    shown = str(worded(config_histories(runs, "run")))
    assert shown.count("1 run: at least 8") == 20
    assert shown.endswith("5 more sections")


def test_comparisons_and_histories_show_themselves(real_traces: Path) -> None:
    trace = real_traces / "gpu-dlrm-2of128"
    compared = compare(trace, trace)._repr_html_()
    folded = compared.index("<details><summary>")
    assert compared.index("No change: ") < compared.index("changed: ") < folded
    assert folded < compared.index("Metrics (times of steps: means)")
    run = make_run(started_at="2026-01-01T00:00:00Z")
    assert "1 run: at least 8 are needed" in worded(config_histories([run], "run"))._repr_html_()


def test_shortcuts_to_tables() -> None:
    report = make_report()
    tables = report.tables()
    assert report.steps.equals(tables.steps)
    assert report.kernels.equals(tables.operators)
    assert report.collectives.equals(tables.collectives)


@pytest.mark.parametrize("name", ["ranks", "steps", "heat_map", "waiting", "bandwidth"])
def test_figures_are_the_charts_of_the_page(name: str) -> None:
    run = make_run()
    drawn, figure = subject_charts()[name].draw(run), getattr(run, f"plot_{name}")()
    assert drawn is not None
    assert figure == drawn.figure()
    assert name != "steps" or make_report(run).plot_steps() == figure


@pytest.mark.parametrize(
    ("figure", "needs"),
    [
        ("plot_steps", "two or more"),
        ("plot_ranks", "two or more"),
        ("plot_heat_map", "two or more"),
        ("plot_waiting", "collectives matched across ranks"),
        ("plot_bandwidth", "matched collectives of two or more sizes"),
    ],
)
def test_a_missing_chart_is_an_error_that_explains_why(figure: str, needs: str) -> None:
    foreign: RunReport = make_foreign_run()
    with pytest.raises(UsageError, match=f"foreign: a .* needs .*{needs}"):
        getattr(foreign, figure)()
    with pytest.raises(UsageError, match="2 runs: plot one of them"):
        getattr(make_report(foreign, foreign), figure)()


def test_a_history_has_a_figure_of_its_step_times() -> None:
    runs = [make_run(f"run-{day}", started_at=f"2026-01-0{day}T00:00:00Z", commit="<b>" * 14) for day in (2, 1)]
    other = make_run("other", started_at="2026-01-03T00:00:00Z", config={"batch_size": 64})
    figure = config_histories([*runs, other], "run").plot_steps()
    assert [list(line.x) for line in figure.data] == [
        ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"],
        [other.started_at],
    ]
    assert list(figure.data[0].y) == [130.0, 130.0]
    assert "<" not in figure.data[0].customdata[0]
    assert "batch_size = 64" in figure.data[1].name
