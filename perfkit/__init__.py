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
    from perfkit.comparing import compare as compare
    from perfkit.comparing import history as history
    from perfkit.errors import PerfkitError as PerfkitError
    from perfkit.model.manifest import RunManifest as RunManifest
    from perfkit.model.report import Report as Report
    from perfkit.pipeline import analyze as analyze
    from perfkit.run.own_loop import profile as profile
    from perfkit.run.session import ProfilerOptions as ProfilerOptions

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
    "ProfilerOptions": "perfkit.run.session",
    "Report": "perfkit.model.report",
    "RunManifest": "perfkit.model.manifest",
    "analyze": "perfkit.pipeline",
    "compare": "perfkit.comparing",
    "history": "perfkit.comparing",
    "profile": "perfkit.run.own_loop",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
