"""Find out where the time of a distributed PyTorch training step goes.

::

    import perfkit

    with perfkit.profile(...) as session:      # record your own training loop
        ...
    report = perfkit.analyze("traces/")        # the report, as records
    report.tables().steps                      # the same as pandas DataFrames
    perfkit.compare("traces/a", "traces/b")    # what changed
    perfkit.history("traces/")                 # how it went over time

Importing perfkit is cheap: each name is imported when it is first used, torch only by `profile` and its options.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from perfkit._version import __version__

if TYPE_CHECKING:
    from perfkit.capture.profile import profile as profile
    from perfkit.capture.recording.session import ProfilerOptions as ProfilerOptions
    from perfkit.errors import PerfkitError as PerfkitError
    from perfkit.pipeline.analyze import analyze as analyze
    from perfkit.pipeline.compare import compare as compare
    from perfkit.pipeline.compare import history as history
    from perfkit.schema.manifest import RunManifest as RunManifest
    from perfkit.schema.report import Report as Report

__all__ = [
    "PerfkitError",
    "ProfilerOptions",
    "Report",
    "RunManifest",
    "__version__",
    "analyze",
    "compare",
    "history",
    "profile",
]

_LAZY: Final = {
    "PerfkitError": "perfkit.errors",
    "ProfilerOptions": "perfkit.capture.recording.session",
    "Report": "perfkit.schema.report",
    "RunManifest": "perfkit.schema.manifest",
    "analyze": "perfkit.pipeline.analyze",
    "compare": "perfkit.pipeline.compare",
    "history": "perfkit.pipeline.compare",
    "profile": "perfkit.capture.profile",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
