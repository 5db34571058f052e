"""Find out where the time of a distributed PyTorch training step goes.

::

    import perfkit

    with perfkit.profile(...) as session:      # record your own training loop
        ...
    prof = perfkit.start(...)                  # the same without indenting it: prof.step(), prof.stop()
    with perfkit.monitor(...) as session:      # a record of every step of it, without a trace
        ...
    perfkit.step()                             # mark the end of a step, for `perfkit run SCRIPT`
    with perfkit.data_loading(): ...           # mark data loading, if the loader is none of torch's
    report = perfkit.analyze("traces/")        # the report, as records
    report.tables().steps                      # the same as pandas DataFrames
    perfkit.steps("traces/my-run")             # what the monitor logged, a row per rank and step
    perfkit.load_report("report.json")         # a report that was written earlier
    perfkit.compare("traces/a", "traces/b")    # what changed
    perfkit.history("traces/")                 # step time and efficiency over runs
    perfkit.plan(build, batch, ranks=8)        # what training a module needs
    perfkit.merge("traces/a", "a.pftrace")     # all ranks on one timeline
    perfkit.predict("traces/a", ["input=0"])   # how long a step would take after a change

Every error that perfkit raises on purpose derives from `perfkit.PerfkitError`; `perfkit.errors` draws the tree.
Importing perfkit is cheap: each name is imported when it is first used, and torch only by `profile`, `monitor`,
`start`, `Recording`, `Session`, `ProfilerOptions` and `StepWork`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from perfkit._version import __version__
from perfkit.records.display import RENDERING

if TYPE_CHECKING:
    from perfkit.engine.subject import Subject as Subject
    from perfkit.errors import CaptureBusyError as CaptureBusyError
    from perfkit.errors import CaptureError as CaptureError
    from perfkit.errors import ExternalToolError as ExternalToolError
    from perfkit.errors import GateError as GateError
    from perfkit.errors import LaunchEnvironmentError as LaunchEnvironmentError
    from perfkit.errors import NotATraceError as NotATraceError
    from perfkit.errors import PerfkitError as PerfkitError
    from perfkit.errors import PluginError as PluginError
    from perfkit.errors import RunError as RunError
    from perfkit.errors import StoreError as StoreError
    from perfkit.errors import TraceError as TraceError
    from perfkit.errors import UndecidedGateError as UndecidedGateError
    from perfkit.errors import UsageError as UsageError
    from perfkit.errors import ViewError as ViewError
    from perfkit.errors import WorkerError as WorkerError
    from perfkit.pipeline.analyze import analyze as analyze
    from perfkit.pipeline.compare import compare as compare
    from perfkit.pipeline.compare import history as history
    from perfkit.pipeline.monitor import steps as steps
    from perfkit.pipeline.whatif import predict as predict
    from perfkit.record.loading_mark import data_loading as data_loading
    from perfkit.record.profile import monitor as monitor
    from perfkit.record.profile import profile as profile
    from perfkit.record.profile import start as start
    from perfkit.record.recording.profiler_options import ProfilerOptions as ProfilerOptions
    from perfkit.record.recording.recording import Recording as Recording
    from perfkit.record.recording.recording import Session as Session
    from perfkit.record.recording.throughput import StepWork as StepWork
    from perfkit.record.script.marker import step as step
    from perfkit.records.common import Finding as Finding
    from perfkit.records.comparison import Comparison as Comparison
    from perfkit.records.comparison import History as History
    from perfkit.records.kernel_rules import KernelRule as KernelRule
    from perfkit.records.manifest import RunManifest as RunManifest
    from perfkit.records.per_run.whatif import WhatIf as WhatIf
    from perfkit.records.rank import RankReport as RankReport
    from perfkit.records.report import Insight as Insight
    from perfkit.records.report import Report as Report
    from perfkit.records.roofline import DevicePeaks as DevicePeaks
    from perfkit.records.run import RunReport as RunReport
    from perfkit.storage.report_file import load_report as load_report
    from perfkit.tools.merge.merge import Merged as Merged
    from perfkit.tools.merge.merge import merge as merge
    from perfkit.tools.plan.api import plan as plan

_ERRORS: Final = (
    *("CaptureBusyError", "CaptureError", "ExternalToolError", "GateError", "LaunchEnvironmentError"),
    *("NotATraceError", "PerfkitError", "PluginError", "RunError", "StoreError", "TraceError", "UndecidedGateError"),
    *("UsageError", "ViewError", "WorkerError"),
)
_LAZY: Final = dict.fromkeys(_ERRORS, "perfkit.errors") | {
    "Comparison": "perfkit.records.comparison",
    "DevicePeaks": "perfkit.records.roofline",
    "Finding": "perfkit.records.common",
    "History": "perfkit.records.comparison",
    "Insight": "perfkit.records.report",
    "KernelRule": "perfkit.records.kernel_rules",
    "Merged": "perfkit.tools.merge.merge",
    "ProfilerOptions": "perfkit.record.recording.profiler_options",
    "RankReport": "perfkit.records.rank",
    "Recording": "perfkit.record.recording.recording",
    "Report": "perfkit.records.report",
    "RunManifest": "perfkit.records.manifest",
    "RunReport": "perfkit.records.run",
    "Session": "perfkit.record.recording.recording",
    "Subject": "perfkit.engine.subject",
    "StepWork": "perfkit.record.recording.throughput",
    "WhatIf": "perfkit.records.per_run.whatif",
    "analyze": "perfkit.pipeline.analyze",
    "compare": "perfkit.pipeline.compare",
    "data_loading": "perfkit.record.loading_mark",
    "history": "perfkit.pipeline.compare",
    "load_report": "perfkit.storage.report_file",
    "merge": "perfkit.tools.merge.merge",
    "plan": "perfkit.tools.plan.api",
    "predict": "perfkit.pipeline.whatif",
    "monitor": "perfkit.record.profile",
    "profile": "perfkit.record.profile",
    "start": "perfkit.record.profile",
    "step": "perfkit.record.script.marker",
    "steps": "perfkit.pipeline.monitor",
}

__all__ = [
    "CaptureBusyError",
    "CaptureError",
    "Comparison",
    "DevicePeaks",
    "ExternalToolError",
    "Finding",
    "GateError",
    "History",
    "Insight",
    "KernelRule",
    "LaunchEnvironmentError",
    "Merged",
    "NotATraceError",
    "PerfkitError",
    "PluginError",
    "ProfilerOptions",
    "RankReport",
    "Recording",
    "Report",
    "RunError",
    "RunManifest",
    "RunReport",
    "Session",
    "StepWork",
    "StoreError",
    "Subject",
    "TraceError",
    "UndecidedGateError",
    "UsageError",
    "ViewError",
    "WhatIf",
    "WorkerError",
    "__version__",
    "analyze",
    "compare",
    "data_loading",
    "history",
    "load_report",
    "merge",
    "monitor",
    "plan",
    "predict",
    "profile",
    "start",
    "step",
    "steps",
]


# Records are below the reports that show them: here, both are known.
RENDERING.append(lambda: import_module("perfkit.report.display"))


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
