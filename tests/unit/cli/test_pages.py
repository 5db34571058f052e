"""The page of `perfkit analyze --html`."""

import json
import shutil
from pathlib import Path

import pytest

from perfkit.base.formatting import escape_unprintable, size
from perfkit.cli import main

pytestmark = pytest.mark.usefixtures("shared_cache")

SAMPLES = Path(__file__).parents[3] / "traces"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pages(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))


def wrote(folder: Path, page: str) -> str:
    return f"Wrote {escape_unprintable(page)} ({size((folder / page).stat().st_size)})\n"


def test_several_runs_have_one_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [str(SAMPLES / name) for name in ("sample-memory", "sample-hdf5")]
    assert main(["analyze", *samples, "--html"]) == 0
    captured = capsys.readouterr()
    assert captured.err == wrote(folder, "reports/traces.html")
    assert "By source: otherwise identical runs" in captured.out
    assert "sample-memory" in (folder / "reports" / "traces.html").read_text()


@pytest.mark.parametrize("arguments", [[], ["--full"], ["-f", "json"], ["-o", "all.md"]])
def test_no_page_that_was_not_asked_for(folder: Path, arguments: list[str]) -> None:
    assert main(["analyze", str(SAMPLES), *arguments]) == 0
    assert pages(folder) == []


def test_one_run_has_one_if_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(SAMPLES / "sample-memory", folder / "a\x1b[31mrun")
    assert main(["analyze", str(folder / "a\x1b[31mrun")]) == 0
    assert pages(folder) == []
    capsys.readouterr()
    assert main(["analyze", str(folder / "a\x1b[31mrun"), "--html", "-f", "csv"]) == 0
    assert pages(folder) == ["reports/a\x1b[31mrun.html"]
    captured = capsys.readouterr()
    assert captured.err == wrote(folder, "reports/a\x1b[31mrun.html")
    assert captured.out.startswith("run,rank,step")


def test_a_page_that_cannot_be_written_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "reports").write_text("in the way")
    assert main(["analyze", str(SAMPLES), "--html"]) == 1
    assert capsys.readouterr().err.startswith("perfkit: error: cannot write reports/traces.html")


def test_only_a_page_has_timelines(folder: Path) -> None:
    sample = str(SAMPLES / "sample-memory")
    assert main(["analyze", sample, "-o", "with.html", "-o", "beside.json"]) == 0
    assert main(["analyze", sample, "-o", "without.html", "--no-timelines"]) == 0
    assert '"lane":"category"' in Path("with.html").read_text()
    assert '"lane":"category"' not in Path("without.html").read_text()
    assert json.loads(Path("beside.json").read_text())["runs"][0]["step_timelines"] == []


def test_a_page_tells_its_size(folder: Path) -> None:
    sample = str(SAMPLES / "sample-memory")
    for name, options in (("chosen", ["--steps", "4"]), ("without", ["--no-timelines"])):
        assert main(["analyze", sample, "-o", f"{name}.html", *options]) == 0
    text = Path("chosen.html").read_text()
    assert f"this page {size(len(text.encode()))}, of which 2 timelines of a rank&#39;s step take " in text
    text = Path("without.html").read_text()
    assert f"this page {size(len(text.encode()))}</footer>" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "4"], "--steps: chooses the timelines of a page: use it with --html or -o FILE.html"),
        (["--html", "--steps", "4", "--no-timelines"], "--steps: chooses the timelines of a page"),
        (["--html", "--steps", "4,x"], "--steps x: give numbers and ranges such as 0,7 or 12-14"),
        (["--html", "--steps", "5"], "--steps 5: no such step of sample-memory; existing: 2 to 4"),
    ],
)
def test_steps_that_no_page_can_have(
    options: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(SAMPLES / "sample-memory"), *options]) == 2
    assert capsys.readouterr().err.startswith(f"perfkit: error: {message}")
    assert pages(folder) == []
