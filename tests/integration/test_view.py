"""`perfkit view` and a real browser."""

import functools
import gzip
import http.server
import json
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perfkit.cli import main
from perfkit.tools.merge.merge import merge
from tests.support.browser import chromium, needs_chromium, new_page
from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, environment
from tests.support.traces.trace_builder import TraceBuilder

SAMPLE = ROOT / "traces" / "sample-memory"

pytestmark = needs_chromium

# Returns the size of the trace, or why the page could not fetch it.
FETCH = """async address => {
    try { return (await (await fetch(address)).arrayBuffer()).byteLength } catch (error) { return error.message }
}"""


# ui.perfetto.dev may fetch from one port only, which may be taken; the page of this test may fetch from any.
ON_ANY_PORT = """
import sys
from perfkit.tools.serve.trace import TraceServer
TraceServer.__init__.__kwdefaults__["port"] = 0
from perfkit.__main__ import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@contextmanager
def page_server(folder: Path) -> Iterator[str]:
    (folder / "index.html").write_text("<!doctype html><title>a page</title>")
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def view(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `perfkit view` on a free port; yield the process and its link."""
    command = [sys.executable, "-c", ON_ANY_PORT, "view", *arguments, "--no-browser"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(4)]
        port = urlsplit(lines[1].partition("url=")[2]).port
        assert f"ssh -L {port}:127.0.0.1:{port} " in lines[2]
        yield process, lines[1]
    finally:
        process.kill()
        process.communicate()


def test_one_origin_may_fetch_and_then_it_ends(browser: Any, tmp_path: Path) -> None:
    with (
        page_server(tmp_path) as allowed,
        page_server(tmp_path) as other,
        view(str(SAMPLE), "--ui", allowed) as (process, link),
    ):
        address = link.partition("url=")[2]
        page = new_page(browser)
        page.goto(other)
        assert page.evaluate(FETCH, address) == "Failed to fetch"
        assert process.poll() is None
        page.goto(allowed)
        assert page.evaluate(FETCH, address) == (SAMPLE / "rank0.json.gz").stat().st_size
        output, errors = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, errors) == (0, "")
        assert output.splitlines()[-1] == "rank0.json.gz: loaded in the browser"
        page.close()


def test_the_ui_opens_a_trace_without_internet(browser: Any) -> None:
    with view(str(SAMPLE), "--rank", "1", "--offline") as (process, link):
        page = new_page(browser)
        page.goto(link)
        page.wait_for_function("document.title.startsWith('rank1.json.gz')")
        page.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, errors) == (0, "")


def _shown_tracks(page: Any) -> list[str]:
    return page.locator(".pf-track__title").all_inner_texts()  # type: ignore[no-any-return]


def test_the_ui_expands_a_rank_of_a_merged_timeline(browser: Any, tmp_path: Path) -> None:
    merged = tmp_path / "merged.pftrace"
    merge(SAMPLE, merged)
    with view(str(merged), "--rank", "1", "--offline") as (_, link):
        page = new_page(browser)
        page.goto(link)
        page.get_by_text("perfkit: where the time goes").first.wait_for()
        titles = " ".join(_shown_tracks(page))
        page.close()
    after = titles.partition("rank 1 ")[2].partition("rank 0 ")[0]
    assert "perfkit: step" in after
    assert "perfkit: step" not in titles.replace(after, "")


@pytest.mark.slow  # starts a process
def test_the_link_shows_the_step() -> None:
    with gzip.open(SAMPLE / "rank1.json.gz") as stream:
        events = json.load(stream, parse_float=Decimal)["traceEvents"]
    begins = {one["name"]: int(one["ts"] * 1000) for one in events if str(one["name"]).startswith("ProfilerStep#")}
    with view(str(SAMPLE), "--rank", "1", "--step", "3") as (_, link):
        shown = dict(part.split("=") for part in link.partition("&")[2].split("&"))
    # Perfetto counts as the trace does; the step ends where the next begins.
    assert shown == {"visStart": str(begins["ProfilerStep#3"]), "visEnd": str(begins["ProfilerStep#4"])}


@pytest.mark.slow  # starts a process
def test_the_pages_command_shows_the_step_of_another_marker(browser: Any, tmp_path: Path) -> None:
    """The profiler's own steps have the same numbers and are others."""
    trace = TraceBuilder(rank=0, world_size=1, backend="gloo").step(0, 0, 14_000).step(1, 14_000, 16_000)
    for place in range(3):
        trace.annotation("my iteration", 10_000 * place, 9_990).op("aten::mm", 10_000 * place + 10, 5000)
    path, page_file = trace.write(tmp_path / "rank0.json"), tmp_path / "page.html"
    assert main(["analyze", str(path), "--step-marker", "^my iter", "-o", str(page_file)]) == 0
    page = new_page(browser)
    page.goto(page_file.as_uri())
    page.locator(".strip.steps .cell").nth(1).click()
    command = shlex.split(page.locator(".command code").text_content())
    page.close()
    assert command == ["perfkit", "view", str(path), "--step", "1", "--step-marker", "^my iter"]
    with view(*command[2:]) as (_, link):
        shown = dict(part.split("=") for part in link.partition("&")[2].split("&"))
    assert shown == {"visStart": "10000000", "visEnd": "20000000"}


@pytest.mark.parametrize(
    ("options", "what"),
    [(["--step-marker", "x"], "give one of these, too"), (["--step", "1", "--step-marker", "("], "is not a regular")],
)
def test_a_marker_that_marks_nothing(options: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(SAMPLE), *options, "--no-browser"]) == 2
    assert what in capsys.readouterr().err


@pytest.mark.parametrize(("step", "what"), [("7", "has steps 2-4"), ("0", "has steps 2-4")])
def test_a_step_that_is_not_there(step: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(SAMPLE), "--step", step, "--no-browser"]) == 2
    assert what in capsys.readouterr().err


@pytest.mark.slow  # merges a timeline and loads the Perfetto UI again
def test_the_ui_opens_a_merged_timeline(browser: Any, tmp_path: Path) -> None:
    timeline = tmp_path / "merged.pftrace"
    subprocess.run([*PYTHON, "merge", str(SAMPLE), "-o", str(timeline)], env=environment(), check=True, timeout=LIMIT_S)
    with view(str(timeline), "--offline") as (process, link):
        page = new_page(browser)
        page.goto(link)
        page.wait_for_function("document.title.startsWith('merged.pftrace')")
        page.get_by_text("rank 1").first.click()
        for track in ("perfkit: step", "perfkit: where the time goes", "perfkit: waits for another rank"):
            page.get_by_text(track).first.wait_for()
        page.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, errors) == (0, "")
