"""Exception hierarchy of perfkit.

::

    PerfkitError                  exit 1  base of all errors that perfkit raises on purpose
    ├── UsageError                exit 2  an invalid option, value or combination
    ├── TraceError                exit 1  a trace that cannot be read at all
    │   └── NotATraceError                a JSON file that is not a trace
    ├── StoreError                exit 1  a run folder, manifest or data file that cannot be read or written
    ├── LaunchEnvironmentError    exit 1  contradictory launcher variables, a missing package or device
    ├── WorkerError               exit 1  a worker process died while it analysed a trace
    ├── ViewError                 exit 1  a trace that cannot be shown: a taken port, a missing viewer
    ├── ExternalToolError         exit 1  another tool failed to analyse the same traces
    ├── PluginError               exit 1  a plug-in that cannot be loaded
    ├── GateError                 exit 3  a condition of `--fail-on` holds
    │   └── UndecidedGateError    exit 4  none holds, but one could not be evaluated
    ├── CaptureError              exit 1  a capture that is refused, or incomplete
    │   └── CaptureBusyError              another capture of the run is in progress
    └── RunError                  exit 1  a training run that failed

Every message is one line: what is wrong, where (file, rank, byte or event) and what to do. The command line prints it
and exits with `exit_code`; a traceback is shown only with `--debug`.
"""


class PerfkitError(Exception):
    """Base of all errors that perfkit raises on purpose."""

    exit_code = 1


class UsageError(PerfkitError):
    """An invalid option, value or combination."""

    exit_code = 2


class TraceError(PerfkitError):
    """A trace that cannot be read at all."""


class NotATraceError(TraceError):
    """A JSON file that is not a trace."""


class StoreError(PerfkitError):
    """A run folder, manifest or data file that cannot be read or written."""


class LaunchEnvironmentError(PerfkitError):
    """Contradictory launcher variables, or a missing package or device."""


class WorkerError(PerfkitError):
    """A worker process died while it analysed a trace."""


class RunError(PerfkitError):
    """A training run that failed."""


class CaptureError(PerfkitError):
    """A capture of a run in progress that is refused, or incomplete."""


class CaptureBusyError(CaptureError):
    """Another capture of the run is in progress."""


class ViewError(PerfkitError):
    """A trace that cannot be shown: a taken port, a missing viewer."""


class ExternalToolError(PerfkitError):
    """Another tool failed to analyse the same traces."""


class PluginError(PerfkitError):
    """A plug-in cannot be loaded, or is not of the kind that its entry point declares."""


class GateError(PerfkitError):
    """A condition of `--fail-on` holds."""

    exit_code = 3


class UndecidedGateError(GateError):
    """No condition of `--fail-on` holds, but one could not be evaluated, so the gate did not pass."""

    exit_code = 4
