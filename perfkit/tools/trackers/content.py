"""What a tracker gets of each run: scalars, the time of every step, the options, and the page."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec

from perfkit._version import __version__
from perfkit.base.formatting import escape_unprintable, install_extra
from perfkit.errors import LaunchEnvironmentError
from perfkit.records.aggregate import steps_ns
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import DEFAULT_TOP, reporter
from perfkit.subjects.comparison.metrics import metrics

_KINDS: Final = ("run", "category", "idle", "loading", "efficiency")
"""Kinds of metrics that every run has; those of single operators and collectives are in the page."""
_MOST_STEPS: Final = 10_000
"""Steps whose times are sent."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._=+-]+")


class TrackedRun(NamedTuple):
    """One run, ready to be sent; all its text is printable."""

    name: str
    """Safe as the name of a file."""
    scalars: dict[str, float]
    """By name as in `perfkit compare`; times end in `_ms`."""
    step_ms: list[float]
    """Time of each step: of those without the profiler if there are any, else of recorded ones."""
    options: dict[str, str]
    """The configuration, and what ran on what."""
    summary: str
    page: str
    """The report as one HTML file."""

    @contextmanager
    def page_file(self) -> Iterator[Path]:
        with TemporaryDirectory() as folder:
            path = Path(folder, "report.html")
            path.write_text(self.page, encoding="utf-8", errors="backslashreplace")
            yield path


def tracked_runs(report: Report) -> list[TrackedRun]:
    return [_tracked(run, report) for run in report.runs]


def _tracked(run: RunReport, report: Report) -> TrackedRun:
    plain = steps_ns(run, "plain")
    found = metrics(run, "plain" if plain else None)
    scalars = {
        key.name + ("_ms" if metric.unit == "ns" else ""): metric.value / (1e6 if metric.unit == "ns" else 1)
        for key, metric in found.items()
        if key.kind in _KINDS
    }
    recorded = run.step_times.recorded_ns if run.step_times else []
    return TrackedRun(
        name=_file_name(run.run),
        scalars=scalars,
        step_ms=[ns / 1e6 for ns in (plain or recorded)[:_MOST_STEPS]],
        options=_options(run),
        summary=escape_unprintable(run.verdict.sentence),
        page=_page(run, report),
    )


def _file_name(name: str) -> str:
    """Return a run's name for a file: never empty, nor `.` or `..`, which lead elsewhere."""
    safe = _UNSAFE.sub("-", name)
    return safe if safe.strip(".") else "run"


def _options(run: RunReport) -> dict[str, str]:
    known = {
        "workload": run.workload,
        "source": run.source,
        "world_size": run.world_size,
        "commit": run.commit,
        "devices": ", ".join(run.device_names) or None,
        "perfkit_version": __version__,
    }
    given: dict[str, Any] = known | {f"config.{name}": value for name, value in (run.config or {}).items()}
    return {
        escape_unprintable(name): escape_unprintable(value if isinstance(value, str) else json.dumps(value))
        for name, value in given.items()
        if value is not None
    }


def _page(run: RunReport, report: Report) -> str:
    alone = report
    if len(report.runs) > 1:
        own = [insight for insight in report.insights if insight.run == run.run]
        alone = msgspec.structs.replace(report, runs=[run], multi_run=None, insights=own)
    stream = io.StringIO()
    reporter(Report, "html").write(alone, stream, top=DEFAULT_TOP)
    return stream.getvalue()


def import_client(module: str, extra: str) -> Any:
    """Import the client of a tracker.

    Raises:
        LaunchEnvironmentError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise LaunchEnvironmentError(f"-o {extra}: needs {module.partition('.')[0]}: {install_extra(extra)}") from error
