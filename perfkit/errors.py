"""Exception hierarchy.

::

    PerfkitError                  exit 1  the base of everything perfkit raises on purpose
    ├── UsageError                exit 2  an invalid option, value or combination
    ├── TraceError                exit 1  a trace that cannot be read at all
    │   └── NotATraceError                a JSON file that is something else
    ├── StoreError                exit 1  a run folder, manifest or data file that cannot be read or written
    ├── LaunchEnvironmentError    exit 1  contradicting launcher variables, a missing package or device
    ├── WorkerError               exit 1  a process that analysed a trace died
    ├── ViewError                 exit 1  a trace that cannot be shown: a taken port, a missing viewer
    ├── ExternalToolError         exit 1  another program, run on the same traces, failed
    ├── PluginError               exit 1  a plug-in of another package that cannot be loaded
    ├── GateError                 exit 3  a condition of `--fail-on` holds
    │   └── UndecidedGateError    exit 4  none holds, but one could not be decided
    └── RunError                  exit 1  a training run that failed

Every message is one line that says what, where (file, rank, byte or event) and what to do about it. The
command line prints it and exits with `exit_code`; a traceback is shown only with `--debug`.
"""


class PerfkitError(Exception):
    """Base of every error that perfkit raises on purpose."""

    exit_code = 1


class UsageError(PerfkitError):
    """An option, a value or a combination that cannot be."""

    exit_code = 2


class TraceError(PerfkitError):
    """A trace that cannot be read at all."""


class NotATraceError(TraceError):
    """A JSON file that is something else."""


class StoreError(PerfkitError):
    """A run folder, manifest or data file that cannot be read or written."""


class LaunchEnvironmentError(PerfkitError):
    """Launcher variables that contradict each other, or a package or device that is missing."""


class WorkerError(PerfkitError):
    """A process that analysed a trace died before it was done."""


class RunError(PerfkitError):
    """A training run that failed."""


class ViewError(PerfkitError):
    """A trace that cannot be shown: a taken port, a missing viewer."""


class ExternalToolError(PerfkitError):
    """Another program, asked to analyse the same traces, failed."""


class PluginError(PerfkitError):
    """A plug-in of another package cannot be loaded, or is not what its entry point says."""


class GateError(PerfkitError):
    """A condition of `--fail-on` holds."""

    exit_code = 3


class UndecidedGateError(GateError):
    """No condition of `--fail-on` holds, but one could not be decided: that is no pass."""

    exit_code = 4
