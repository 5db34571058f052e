"""Charts as SVG, as slides have them."""

import io
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.records.report import Report
from perfkit.report import reporter_for
from perfkit.report.charts.run import figure_names, which_figure
from tests.support.reports.report_builders import make_report, make_run
from tests.support.reports.scaling_builders import make_scaling_report, make_together, make_weak
from tests.unit.report.test_html import HOSTILE
from tests.unit.subjects.scaling.test_laws import usl

TAG = "{http://www.w3.org/2000/svg}"


def drawn(report: Report, file: str) -> ElementTree.Element:
    stream = io.StringIO()
    reporter_for(Report, Path(file)).write(report, stream, top=10)
    return ElementTree.fromstring(stream.getvalue())  # noqa: S314  made here


def texts(of: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in of.iter(f"{TAG}text")]


def test_a_slide_says_what_scales_in_large_type() -> None:
    report = make_together(make_weak(usl(0.05, 0.002), [1, 2, 4]))
    assert report.multi_run is not None
    (series,) = report.multi_run.series
    picture = drawn(report, "scaling.svg")
    shown = texts(picture)
    assert " ".join(shown).startswith(series.sentence)
    assert {f"{100 * point.efficiency.value:.0f} %" for point in series.points[1:]} <= set(shown)
    assert min(int(one.get("font-size", "0")) for one in picture.iter(f"{TAG}text")) >= 24
    for text in picture.iter(f"{TAG}text"):
        assert 0 <= float(text.get("y", "-1")) <= 720


@pytest.mark.parametrize("file", ["weak.svg", "talk.lost.svg", "throughput.svg"])
def test_a_file_is_named_after_its_figure(file: str) -> None:
    assert drawn(make_scaling_report(), file).tag == f"{TAG}svg"


def test_a_number_chooses_between_figures_of_one_name() -> None:
    report = make_scaling_report()
    assert texts(drawn(report, "scaling-1.svg")) == texts(drawn(report, "scaling.svg"))
    assert which_figure(report, "scaling") == ""  # there is one
    with pytest.raises(UsageError, match="no figure 'scaling-9': there are 1 of 'scaling'"):
        drawn(report, "scaling-9.svg")


def test_a_name_from_a_run_is_text() -> None:
    report = make_scaling_report()
    assert report.multi_run is not None
    series = [replace(one, workload=HOSTILE, name=HOSTILE, sentence=HOSTILE) for one in report.multi_run.series[:1]]
    picture = drawn(replace(report, multi_run=replace(report.multi_run, series=series)), "scaling.svg")
    assert {one.tag for one in picture.iter()} <= {
        f"{TAG}{name}" for name in ("svg", "title", "defs", "pattern", "path", "rect", "text", "circle")
    }
    assert "<img" in " ".join(texts(picture))
    assert not any(name.startswith("on") for one in picture.iter() for name in one.attrib)


def test_a_figure_of_one_run() -> None:
    assert {"0", "1", "rank"} <= set(texts(drawn(make_report(make_run()), "ranks.svg")))
    with pytest.raises(UsageError, match="figure 'heat_map' has no SVG here: press SVG"):
        drawn(make_report(make_run()), "heat_map.svg")


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match=f"no figure 'page': choose from {', '.join(figure_names())}"):
        reporter_for(Report, Path("page.svg"))
    with pytest.raises(UsageError, match=r"no PNG from the command line: write \.svg, or press PNG"):
        reporter_for(Report, Path("scaling.png"))
    with pytest.raises(UsageError, match="a figure of 'scaling' needs a scaling series"):
        make_report().figure("scaling")
    with pytest.raises(UsageError, match="no figure 'none': choose from scaling, strong"):
        make_run().figure("none")


def test_a_figure_in_python_is_that_of_the_page() -> None:
    figure = make_scaling_report().figure("scaling")
    assert "efficiency" in [one.name for one in figure.data]
    assert make_run().figure("ranks") == make_run().plot_ranks()


def test_a_figure_imports_no_torch() -> None:
    code = (
        "import sys; from perfkit.report import reporter_for; from perfkit.records.report import Report; "
        "from pathlib import Path; reporter_for(Report, Path('scaling.svg')); "
        "import perfkit.report.exporters.picture; sys.exit('torch' in sys.modules or 'plotly' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
