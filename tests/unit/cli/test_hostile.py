"""Traces in which every string is an attack, through every command and every output format."""

import csv
import json
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import perfkit
from perfkit.cli import main
from perfkit.records.comparison import Comparison, History
from perfkit.records.report import Report
from perfkit.report import FORMATS as REPORTERS
from perfkit.tools.serve.trace import TraceServer
from tests.support.browser import Visit, chromium, needs_chromium
from tests.support.traces.hostile import FORMULAS, MARKUP, harmless, hostile, make_runs

NOT_OF_ANY_RUNS = (".talp.json", ".extrap.jsonl", ".points.csv", ".options.csv", ".svg")
"""Formats of one run, of series, or of option comparisons only."""
FORMATS = {
    command: [
        suffix
        for row in REPORTERS[record].values()
        for suffix in row.suffixes
        if not row.binary and suffix not in NOT_OF_ANY_RUNS
    ]
    for command, record in (("analyze", Report), ("compare", Comparison), ("history", History))
}
GATE = ["--fail-on", "step_time > 900s", "--fail-on", "compute > 99%"]


NOT_UTF_8 = "\udcff" if sys.platform == "linux" else ""
_OURS = {"\n", "\u2003"}
"""Line breaks, and the em space of indentation."""


class Tags(HTMLParser):
    """Collect the elements of a page, with all attributes but titles and classes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, ...]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, *sorted(name for name, _ in attrs if name not in ("title", "class"))))


def tags(text: str) -> list[tuple[str, ...]]:
    reader = Tags()
    reader.feed(text)
    return reader.seen


def write_all(folder: Path, runs: list[Path]) -> dict[str, Path]:
    """Write every format of every command; return the files by command and suffix."""
    made: dict[str, Path] = {}
    one, other = map(str, runs)
    for command, suffixes in FORMATS.items():
        files = {suffix: folder / f"{command}{suffix}" for suffix in suffixes}
        outputs = [["-o", str(file)] for file in files.values()]
        if command == "analyze":
            for output in outputs:
                assert main(["analyze", one, other, *output]) == 0
        else:
            more = GATE if command == "compare" else []
            # A gate on incomplete runs, as these are, is not decided.
            code = 4 if more else 0
            assert main([command, one, other, *more, *(word for output in outputs for word in output)]) == code
        made |= {f"{command}{suffix}": file for suffix, file in files.items()}
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hostile")
    return write_all(folder, make_runs(folder / "runs"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("harmless")
    return write_all(folder, make_runs(folder / "runs", harmless))


_OF_NUMBERS = (
    "analyze.csv",
    "analyze.collectives.csv",
    "analyze.dimensions.csv",
    "analyze.parameter_gathers.csv",
    "analyze.pipelines.csv",
    "compare.xml",
    "compare.benchmark.json",
)
"""Files that contain none of the trace's names."""
TEXTS = [f"{command}{suffix}" for command, suffixes in FORMATS.items() for suffix in suffixes]


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_reaches_a_terminal_but_what_prints(made: dict[str, Path], name: str) -> None:
    text = made[name].read_text("utf-8")
    if name.endswith(".html"):  # perfkit's own scripts have line breaks
        text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert "owned" in text or name in _OF_NUMBERS, "add a format without the trace's names to _OF_NUMBERS"
    assert {character for character in text if not character.isprintable()} <= _OURS


@pytest.mark.parametrize("name", [name for name in TEXTS if name.endswith(".html")])
def test_a_page_has_the_elements_of_a_harmless_one(made: dict[str, Path], plain: dict[str, Path], name: str) -> None:
    ours, theirs = (tags(files[name].read_text("utf-8")) for files in (made, plain))
    assert {tag for tag, *_ in ours} == {tag for tag, *_ in theirs}
    assert set(ours) == set(theirs)
    assert MARKUP not in made[name].read_text("utf-8")


@needs_chromium
@pytest.mark.slow  # draws a page of every command in full
def test_a_browser_runs_nothing(made: dict[str, Path]) -> None:
    with chromium() as browser:
        for name in ("analyze.html", "compare.html", "history.html"):
            visit = Visit(browser, made[name])
            assert visit.draw_all() > 0
            assert visit.page.query_selector_all("img, svg a, foreignObject") == []
            cells = visit.page.locator(".strip.ranks .cell")
            if cells.count():
                cells.first.click()
            # Pointing at a chart or a timeline, or stepping through it, shows names.
            for plot in visit.page.query_selector_all(".plot, .timeline canvas"):
                plot.focus()
                visit.page.keyboard.press("ArrowRight")
                assert visit.page.locator(".hint").is_visible()
                assert visit.page.query_selector_all("img, svg a, foreignObject") == []
            assert visit.trouble == []
            visit.page.close()


@pytest.mark.parametrize("name", [name for name in TEXTS if name.endswith(".md")])
def test_markdown_renders_as_tables_and_text(made: dict[str, Path], name: str) -> None:
    text = made[name].read_text("utf-8")
    renderer = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    shown = {tag for tag, *_ in tags(renderer.render(text))}
    assert shown <= {
        "h1",
        "h2",
        "h3",
        "p",
        "strong",
        "ul",
        "ol",
        "li",
        "br",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "hr",
    }
    widths = [{line.count("|") for line in block.splitlines()} for block in text.split("\n\n") if block.startswith("|")]
    assert all(len(width) == 1 for width in widths)


def test_no_cell_of_a_csv_is_a_formula(made: dict[str, Path], tmp_path: Path) -> None:
    files = [made["analyze.csv"]]
    for number, start in enumerate(FORMULAS):
        folder = tmp_path / str(number)
        (run,) = make_runs(folder, lambda _="", start=start: start.replace("/", ""), runs=1)
        renamed = run.rename(folder / start.replace("/", ""))
        files.append(tmp_path / f"{number}.csv")
        assert main(["analyze", str(renamed), "-o", str(files[-1])]) == 0
    for file in files:
        rows = list(csv.reader(file.read_text("utf-8").splitlines()))
        assert len({len(row) for row in rows}) == 1
        first = {cell.lstrip()[:1] for row in rows for cell in row}
        assert not first & set("=+-@\t\r＝＋－＠")


@pytest.mark.parametrize("name", [name for name in TEXTS if name.endswith(".json")])
def test_json_says_what_the_trace_said(made: dict[str, Path], name: str) -> None:
    found = json.loads(made[name].read_bytes())
    if name == "analyze.json":
        (run, _) = found["runs"]
        assert any(MARKUP in operator["name"] for operator in run["ranks"][0]["operators"])
        assert run["workload"] == hostile()


def test_junit_is_xml(made: dict[str, Path]) -> None:
    cases = ET.parse(made["compare.xml"]).getroot()  # noqa: S314  perfkit's own
    assert [case.attrib["name"] for case in cases] == GATE[1::2]


def test_a_notebook_shows_text(tmp_path: Path) -> None:
    shown: list[str] = []
    for text in (hostile, harmless):
        one, other = make_runs(tmp_path / text.__name__, text)
        report = perfkit.analyze(one, other)
        records: list[Any] = [report, *report.runs, perfkit.compare(one, other), perfkit.history(one, other)]
        shown.append("".join(record._repr_html_() for record in records))
    ours, theirs = map(tags, shown)
    assert set(ours) == set(theirs)
    assert not {"script", "img"} & {tag for tag, *_ in ours}
    assert {character for character in shown[0] if not character.isprintable()} <= _OURS


def test_errors_are_one_printable_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = make_runs(tmp_path, runs=1)
    for path in run.glob("*.json.gz"):
        path.write_bytes(b"{")
    (run / "run.json").write_text('{"schema_version": 1, "run": 7, "\\u001b[2J": 1}')
    for command in (["analyze", str(run)], ["compare", str(run), str(run)], ["history", str(run)]):
        assert main(command) != 0
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.rstrip("\n").isprintable()


@pytest.mark.parametrize("head", [b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"some notes\n"])
def test_view_serves_nothing_that_is_no_timeline(
    head: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfkit.tools.serve.trace.TraceServer.serve_until_fetched", lambda _server: None)
    monkeypatch.setattr(TraceServer.__init__, "__kwdefaults__", {"ui": None, "ui_files": None, "port": 0})
    (tmp_path / "model.pt").write_bytes(head)
    assert main(["view", str(tmp_path / "model.pt"), "--no-browser"]) == 1
    shown = capsys.readouterr()
    assert not shown.out
    assert "not a trace or a timeline" in shown.err


@pytest.mark.parametrize("command", ["merge", "view"])
def test_a_name_of_a_folder_is_text_too(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = make_runs(tmp_path / "runs", runs=1)
    escape = run.rename(tmp_path / "runs" / f"\x1b]0;owned\x07{NOT_UTF_8}")
    monkeypatch.setattr("perfkit.tools.serve.trace.TraceServer.serve_until_fetched", lambda _server: None)
    monkeypatch.setattr(TraceServer.__init__, "__kwdefaults__", {"ui": None, "ui_files": None, "port": 0})
    assert main([command, str(escape), *(["--no-browser"] if command == "view" else [])]) == 0
    shown = capsys.readouterr()
    assert "owned" in shown.out + shown.err
    assert {character for character in shown.out + shown.err if not character.isprintable()} <= {"\n"}
