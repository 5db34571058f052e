"""A headless Chromium for tests of HTML pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.launching import LIMIT_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")

WAIT_MS = 1000 * LIMIT_S

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *QUIET], timeout=WAIT_MS)
        yield running
        running.close()


def new_page(browser: Any, **options: Any) -> Any:
    """Return a page on which nothing is given up soon: a busy machine may take minutes."""
    page = browser.new_page(**options)
    page.set_default_timeout(WAIT_MS)
    return page


class Visit:
    """A page, with its errors, dialogs and requests to other hosts."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, **options: Any) -> None:
        self.page = new_page(browser, viewport={"width": width, "height": 900}, **options)
        self.trouble: list[str] = []
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", self._opened)
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("main")

    def _opened(self, dialog: Any) -> None:
        self.trouble.append("a dialog")
        dialog.dismiss()

    def _asked(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.trouble.append(url)

    def unfold(self) -> None:
        """Unfold all runs and tables."""
        self.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")

    def draw_all(self) -> int:
        """Unfold all, so that every chart is drawn; return the number of charts."""
        self.unfold()
        charts = self.page.query_selector_all("figure.chart")
        for chart in charts:
            chart.wait_for_selector(".plot > svg")
        return len(charts)
