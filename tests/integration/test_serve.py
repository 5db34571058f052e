"""`perfkit serve` as a user has it: the command, and a browser that follows runs, opens one, and compares two."""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import chromium, needs_chromium, new_page
from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, environment

pytestmark = [pytest.mark.slow, needs_chromium]

SAMPLES = ROOT / "traces"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Yield a folder with a run, and the address at which it is served."""
    folder = tmp_path / "runs"
    shutil.copytree(SAMPLES / "sample-memory", folder / "first")
    command = [*PYTHON, "serve", str(folder), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == f"{folder}\n"
        yield folder, server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=LIMIT_S) == 0
    finally:
        server.kill()
        server.communicate()


def test_the_list_follows_the_folder_and_leads_to_reports(served: tuple[Path, str]) -> None:
    folder, address = served
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", address)
    trouble: list[str] = []
    with chromium() as browser:
        page = new_page(browser, viewport={"width": 1280, "height": 900})
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto(address)
        page.wait_for_selector("tbody tr >> text=first")
        shutil.copytree(SAMPLES / "sample-hdf5", folder / "second")
        page.wait_for_selector("tbody tr >> text=second")  # without a reload
        assert page.is_disabled("button")
        for name in ("first", "second"):  # analysed because they are in view
            row = page.get_by_role("row").filter(has_text=name)
            row.locator(".shares span").first.wait_for()
            assert "compute" in (row.locator(".shares").get_attribute("aria-label") or "")
            assert "compute" in row.locator(".answer > span").inner_text()
            label = row.locator(".spark").get_attribute("aria-label") or ""
            assert re.fullmatch(r"The newest 32 steps: [\d.]+ ms to [\d.]+ ms", label)
        for width in (400, 320):  # each run is a card
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            cells = row.get_by_role("cell")
            assert cells.count() == 8
            assert all(cells.nth(place).bounding_box()["x"] < width for place in range(8))
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_label("Compare second").check()
        page.get_by_label("Compare first").check()
        page.click("text=Compare two runs")
        compared = page.frame_locator("iframe").locator(".verdict").first
        assert "per step" in compared.inner_text()
        assert page.text_content("h1") == "first → second"  # the earlier one first
        page.click("text=All runs")
        page.click("tbody >> text=second")
        report = page.frame_locator("iframe")
        report.locator(".strip.ranks .cell").nth(1).click()
        opens = report.locator(".command a", has_text="Open it").get_attribute("href")
        assert re.search(r"/perfetto/\w{16}\?trace=rank1\.json\.gz&step=\d+$", opens or "")
        links = page.query_selector_all("nav a")
        assert [link.text_content() for link in links] == ["rank 0", "rank 1"]
    assert trouble == []
