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
from urllib.parse import parse_qs, urlsplit

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perfkit._version import __version__
from perfkit.errors import PerfkitError
from perfkit.report import DEFAULT_TOP, reporter
from perfkit.schema.report import Report
from perfkit.server.runs import RunList, key_of, signature_of, trace_of_rank
from perfkit.storage.discovery import RunLocation
from perfkit.storage.filenames import rank_in_name

_KEPT: Final = 32
"""Reports that are kept; each is some megabytes."""
_MOST_LINKS: Final = 64
"""Ranks with a link of their own; of more, the number is typed."""
_MOST_DIGITS: Final = 9


class Page(NamedTuple):
    """An answer to a request."""

    content: bytes
    media_type: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    frames: bool = False
    """Whether it shows another page of the server in itself."""
    location: str = ""
    """Where the browser is sent instead."""


class Pages:
    """Answers for the paths below the server's secret one; may be used by several threads.

    Args:
        folders: What to show.
        open_trace: Returns the address at which the Perfetto UI shows a trace, at a step if one is given.
    """

    def __init__(self, folders: list[Path], open_trace: Callable[[Path, int | None], str]) -> None:
        self._runs = RunList(folders)
        self._folders = folders
        self._open_trace = open_trace
        self._reports: OrderedDict[Hashable, bytes] = OrderedDict()
        self._analysing = threading.Lock()
        self._templates = Environment(
            loader=PackageLoader("perfkit.server", "assets"), autoescape=True, undefined=StrictUndefined
        )

    def answer(self, path: str) -> Page:
        """Return the page at a path, such as `run/KEY` or `compare?before=KEY&after=KEY`."""
        parts = urlsplit(path)
        name, _, rest = parts.path.partition("/")
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        answers: dict[str, Callable[[], Page]] = {
            "": self._list,
            "runs.json": self._runs_json,
            "run": lambda: self._run(rest),
            "report": lambda: self._report(rest),
            "compare": lambda: self._compare(given),
            "comparison": lambda: self._comparison(given),
            "perfetto": lambda: self._perfetto(rest, given),
        }
        try:
            return answers.get(name, _not_found)()
        except PerfkitError as error:
            return self._message(str(error), HTTPStatus.INTERNAL_SERVER_ERROR)

    def _list(self) -> Page:
        return self._render("runs.html.j2", folders=[str(folder) for folder in self._folders])

    def _runs_json(self) -> Page:
        return Page(msgspec.json.encode(self._runs.read()), "application/json")

    def _run(self, key: str) -> Page:
        location = self._runs.find(key)
        if location is None:
            return _not_found()
        ranks = sorted({rank for trace in location.traces if (rank := rank_in_name(trace.name)) is not None})
        return self._render(
            "frame.html.j2",
            frames=True,
            title=location.name,
            source=f"../report/{key}",
            key=key,
            ranks=ranks[:_MOST_LINKS],
            more=len(ranks) - _MOST_LINKS,
            has_traces=bool(location.traces),
            home="..",
        )

    def _report(self, key: str) -> Page:
        location = self._runs.find(key)
        if location is None:
            return _not_found()
        if not location.traces:
            return self._message("This run has written no trace yet. Reload once it has.", HTTPStatus.OK)
        return self._kept((key, signature_of(location)), lambda: _analyse(location))

    def _compare(self, given: dict[str, str]) -> Page:
        before, after = (self._runs.find(given.get(side, "")) for side in ("before", "after"))
        if before is None or after is None:
            return _not_found()
        query = f"before={key_of(before.path)}&after={key_of(after.path)}"
        return self._render(
            "frame.html.j2",
            frames=True,
            title=f"{before.name} → {after.name}",
            source=f"comparison?{query}",
            key="",
            ranks=[],
            more=0,
            has_traces=False,
            home=".",
        )

    def _comparison(self, given: dict[str, str]) -> Page:
        before, after = (self._runs.find(given.get(side, "")) for side in ("before", "after"))
        if before is None or after is None:
            return _not_found()
        from perfkit.pipeline.compare import compare

        signatures = tuple((key_of(side.path), signature_of(side)) for side in (before, after))
        return self._kept(signatures, lambda: compare(before.path, after.path))

    def _perfetto(self, key: str, given: dict[str, str]) -> Page:
        location = self._runs.find(key)
        try:
            rank, step = (_number(given.get(name)) for name in ("rank", "step"))
        except ValueError:
            return _not_found()
        if location is None:
            return _not_found()
        address = self._open_trace(trace_of_rank(location, rank), step)
        return Page(b"", status=HTTPStatus.SEE_OTHER, location=address)

    def _kept(self, key: Hashable, analyse: Callable[[], Any]) -> Page:
        """Return the report kept under a key, or analyse; one at a time, for it takes all cores."""
        with self._analysing:
            if key not in self._reports:
                record = analyse()
                text = io.StringIO()
                reporter(type(record), "html").write(record, text, top=DEFAULT_TOP)
                self._reports[key] = text.getvalue().encode("utf-8", "replace")
            self._reports.move_to_end(key)
            while len(self._reports) > _KEPT:
                self._reports.popitem(last=False)
            return Page(self._reports[key])

    def _message(self, text: str, status: HTTPStatus) -> Page:
        return self._render("message.html.j2", status=status, message=text)

    def _render(self, name: str, *, status: HTTPStatus = HTTPStatus.OK, frames: bool = False, **values: object) -> Page:
        text = self._templates.get_template(name).render(
            style=_asset("runs.css"), script=_asset("runs.js"), version=__version__, **values
        )
        return Page(text.encode("utf-8", "replace"), status=status, frames=frames)


def _analyse(location: RunLocation) -> Report:
    from perfkit.pipeline.analyze import analyze
    from perfkit.timeline.step_timelines import with_step_timelines

    report = analyze(*([location.path] if location.has_manifest else location.traces))
    return with_step_timelines(report)


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise ValueError(text)
    return int(text)


def _not_found() -> Page:
    return Page(b"There is no such page.", "text/plain", HTTPStatus.NOT_FOUND)


def _asset(name: str) -> Markup:
    return Markup(files("perfkit.server").joinpath("assets", name).read_text("utf-8"))  # noqa: S704  perfkit's own file
