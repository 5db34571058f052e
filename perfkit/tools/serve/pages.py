"""The pages of `perfkit serve`: the list of runs, and reports, which are analysed when they are first asked for.

A report is shown in a frame below a bar with links, so that it is the same page that `perfkit analyze -o` writes.
"""

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from perfkit._version import __version__
from perfkit.base.formatting import escape_unprintable
from perfkit.base.parsing import parse_step
from perfkit.errors import PerfkitError, UsageError
from perfkit.record.on_demand.mailbox import has_died
from perfkit.records.report import Report
from perfkit.report import DEFAULT_TOP, reporter
from perfkit.report.content.answer import run_answer
from perfkit.report.content.ledger import DrawnRow, drawn_ledger
from perfkit.report.wording.ledger import LABELS
from perfkit.storage.discovery import RunLocation
from perfkit.storage.run_folder import read_manifest
from perfkit.tables.labels import COLOURS, PATTERNS
from perfkit.tools.serve.runs import RunList, find_trace, has_data, key_of, links, signature_of

_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
_MOST_REPORTS: Final = 32
"""So many are kept; each is some megabytes."""
_MOST_SUMMARIES: Final = 10_000
"""Likewise; each has less than a kilobyte."""
_MOST_LINKS: Final = 64
"""Traces with their own link."""


class Page(NamedTuple):
    """An answer to a request."""

    content: bytes
    media_type: str = _HTML
    status: HTTPStatus = HTTPStatus.OK
    frames: bool = False
    """Whether it shows another page of the server in itself."""
    location: str = ""
    """Where the browser is sent instead."""


class _NotFoundError(Exception):
    """There is no such run."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """What a row shows of a run's analysis."""

    verdict: str
    tone: str
    """As in `perfkit.tables.specification.Tone`; `error` if the run cannot be analysed."""
    rows: list[DrawnRow] = []
    """What takes the step; empty without steps."""


_ANALYSING: Final = threading.Lock()


class _Kept:
    """Answers by what they are about, the newest `most`; made one at a time, for an analysis takes all cores."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        found = self._answers.get(key)
        if found is not None:
            return found
        with _ANALYSING:
            if key not in self._answers:
                self._answers[key] = make()
            found = self._answers[key]
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        return found


class Pages:
    """Answers for the paths below the server's secret one; may be used by several threads.

    Args:
        open_trace: Returns the address at which the Perfetto UI shows a trace, at a step and a time of it if these
            are given: a number or None, and a span as of `perfkit view --at` or nothing.
    """

    def __init__(self, folders: list[Path], open_trace: Callable[[Path, int | None, str], str]) -> None:
        self._runs = RunList(folders)
        self._folders = folders
        self._open_trace = open_trace
        self._reports = _Kept(_MOST_REPORTS)
        self._summaries = _Kept(_MOST_SUMMARIES)
        self._templates = Environment(
            loader=PackageLoader("perfkit.tools.serve", "assets"), autoescape=True, undefined=StrictUndefined
        )

    def answer(self, path: str) -> Page:
        """Return the page at a path, such as `run/KEY` or `compare?before=KEY&after=KEY`."""
        try:
            parts = urlsplit(path)
            given = {key: values[0] for key, values in parse_qs(parts.query, errors="surrogateescape").items()}
        except ValueError:  # no address: the brackets of a host that is none
            return _not_found()
        name, _, rest = parts.path.partition("/")
        answers: dict[str, Callable[[], Page]] = {
            "": self._list,
            "runs.json": self._runs_json,
            "summary": lambda: self._summary(rest),
            "run": lambda: self._run(rest),
            "report": lambda: self._report(rest),
            "compare": lambda: self._compare(given),
            "comparison": lambda: self._comparison(given),
            "perfetto": lambda: self._perfetto(rest, given),
        }
        try:
            return answers.get(name, _not_found)()
        except _NotFoundError:
            return _not_found()
        except PerfkitError as error:
            return self._message(str(error), HTTPStatus.INTERNAL_SERVER_ERROR)
        except Exception as error:  # noqa: BLE001  the outermost boundary of a request
            return self._message(f"perfkit failed: {error!r}", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _find(self, key: str) -> RunLocation:
        found = self._runs.find(key)
        if found is None:
            raise _NotFoundError
        return found

    def _list(self) -> Page:
        keys = [(LABELS[cause], COLOURS[cause], PATTERNS.get(cause, "")) for cause in LABELS]
        return self._render("runs.html.j2", folders=[str(folder) for folder in self._folders], keys=keys)

    def _runs_json(self) -> Page:
        return Page(msgspec.json.encode(self._runs.read()), _JSON)

    def _summary(self, key: str) -> Page:
        """Return the answer of a run for its row; the browser asks for those that are in view, one at a time."""
        location = self._find(key)
        if not has_data(location):
            return Page(b"null", _JSON)
        try:
            found = self._summaries.get(
                (key, signature_of(location)), lambda: msgspec.json.encode(_summarized(_analysed(location)))
            )
        except PerfkitError as error:
            found = msgspec.json.encode(RunSummary(verdict=escape_unprintable(str(error)), tone="error"))
        return Page(found, _JSON)

    def _run(self, key: str) -> Page:
        location = self._find(key)
        traces = links(location)
        return self._render(
            "frame.html.j2",
            frames=True,
            title=escape_unprintable(location.name),
            source=f"../report/{key}",
            home="..",
            traces=[
                (label, f"../perfetto/{key}?{urlencode({'trace': file}, errors='surrogateescape')}")
                for label, file in traces[:_MOST_LINKS]
            ],
            more=max(0, len(traces) - _MOST_LINKS),
        )

    def _report(self, key: str) -> Page:
        location = self._find(key)
        if not has_data(location) and _is_running(location):
            return self._message("This run has written nothing to analyse yet. Reload once it has.", HTTPStatus.OK)
        from perfkit.tools.merge.step_timelines import with_step_timelines

        signature = signature_of(location)
        return Page(self._reports.get((key, signature), lambda: _as_page(with_step_timelines(_analysed(location)))))

    def _compare(self, given: dict[str, str]) -> Page:
        before, after = (self._find(given.get(side, "")) for side in ("before", "after"))
        query = f"before={key_of(before.path)}&after={key_of(after.path)}"
        return self._render(
            "frame.html.j2",
            frames=True,
            title=escape_unprintable(f"{before.name} → {after.name}"),
            source=f"comparison?{query}",
            home=".",
            traces=[],
            more=0,
        )

    def _comparison(self, given: dict[str, str]) -> Page:
        before, after = (self._find(given.get(side, "")) for side in ("before", "after"))
        from perfkit.pipeline.compare import compare

        signatures = tuple((key_of(side.path), signature_of(side)) for side in (before, after))
        return Page(self._reports.get(signatures, lambda: _as_page(compare(before.path, after.path))))

    def _perfetto(self, key: str, given: dict[str, str]) -> Page:
        trace = find_trace(self._find(key), given.get("trace", ""))
        try:
            step = parse_step(given["step"], "step") if given.get("step") else None
        except UsageError:
            return _not_found()
        if trace is None:
            return _not_found()
        address = self._open_trace(trace, step, given.get("at", ""))
        return Page(b"", status=HTTPStatus.SEE_OTHER, location=address)

    def _message(self, text: str, status: HTTPStatus) -> Page:
        return self._render("message.html.j2", status=status, message=text)

    def _render(self, name: str, *, status: HTTPStatus = HTTPStatus.OK, frames: bool = False, **values: object) -> Page:
        text = self._templates.get_template(name).render(
            style=_asset("runs.css"), script=_asset("runs.js"), version=__version__, **values
        )
        return Page(text.encode("utf-8", "replace"), status=status, frames=frames)


def _analysed(location: RunLocation) -> Report:
    from perfkit.pipeline.analyze import analyze

    by_folder = location.has_manifest or not location.traces
    return analyze(*([location.path] if by_folder else location.traces))


def _summarized(report: Report) -> RunSummary:
    """Return the answer of the only run of a report."""
    (run,) = report.runs
    answer = run_answer(run)
    found = drawn_ledger(run, answer.parts)
    return RunSummary(verdict=answer.headline, tone=answer.tone, rows=found.rows if found else [])


def _as_page(record: Any) -> bytes:
    text = io.StringIO()
    reporter(type(record), "html").write(record, text, top=DEFAULT_TOP)
    return text.getvalue().encode("utf-8", "replace")


def _is_running(location: RunLocation) -> bool:
    return location.has_manifest and read_manifest(location.path).state == "running" and not has_died(location.path)


def _not_found() -> Page:
    return Page(b"There is no such page.", "text/plain", HTTPStatus.NOT_FOUND)


def _asset(name: str) -> Markup:
    return Markup(files("perfkit.tools.serve").joinpath("assets", name).read_text("utf-8"))  # noqa: S704  perfkit's own file
