"""Asks a run for a trace of its coming steps, from the live view: `perfkit capture` in a process beside it."""

import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from perfkit.util.child_python import child_python

_STEPS: Final = 3


class TraceRequest:
    """A capture in progress, or one that has ended.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        command = [*child_python("perfkit.__main__", "main"), "capture", str(folder), "--steps", str(_STEPS)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True
        )

    @property
    def is_over(self) -> bool:
        """Whether the command has ended."""
        return self._process.poll() is not None

    def message(self) -> str:
        """Return the newest line that the command has printed."""
        self._output.seek(0)
        lines = self._output.read().decode("utf-8", "replace").split("\n")
        printed = [line.strip() for line in lines if line.strip()]
        return printed[-1] if printed else f"asking for a trace of {_STEPS} steps"

    def stop(self) -> None:
        """Withdraw the request if it has not ended."""
        if not self.is_over:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
        self._output.close()
