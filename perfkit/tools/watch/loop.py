"""Reads and draws until the user quits, with a small share of a core; answers keys, one of which asks for a trace."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.live import Live

from perfkit.base.formatting import shell_word
from perfkit.base.process import child_python
from perfkit.storage.step_log.follow import RunFollower, latest_run
from perfkit.tools.watch.frame import SORTS, draw
from perfkit.tools.watch.view import RunView, find_events, view

_STEPS: Final = 3


class TraceRequest:
    """A capture in progress, or one that has ended."""

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


Wait = Callable[[float], str]
"""Waits for so many seconds, or until a key is pressed, which it returns; empty without one."""


@contextmanager
def pressed_keys() -> Iterator[Wait]:
    """Let the terminal pass on each key at once; where stdin is no terminal, there are no keys."""
    if not sys.stdin.isatty():
        yield partial(_key, [])
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield partial(_key, [descriptor])
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key(descriptors: list[int], seconds: float) -> str:
    ready, _, _ = select.select(descriptors, [], [], seconds)
    return os.read(ready[0], 1).decode("ascii", "ignore") if ready else ""


_SHORTEST_S: Final = 1.0
"""Time between two frames of a run with few ranks."""
_SHARE: Final = 1 / 30
"""Largest share of a core that reading and drawing takes: many ranks are read less often."""
_EVENTS_SHARE: Final = 1 / 100
"""The same, of looking for what happened."""


class NewestRun:
    """The run of a folder whose logs were written to last; once it no longer trains, the next takes its place."""

    def __init__(self, given: Path) -> None:
        self.run = RunFollower(latest_run(given))
        self._given = given
        self._before = ""

    def turn(self, shown: RunView | None) -> None:
        """Turn to the run that was written to last, unless the one that is shown trains."""
        if shown is None or shown.is_training:
            return
        newest = latest_run(self._given)
        if newest != self.run.folder:
            self._before = f"{shown.name}: {shown.state}; {self._where()}" if shown.is_over else ""
            self.run = RunFollower(newest)
            self.run.read()

    def notes(self, shown: RunView) -> list[str]:
        """Return what follows the end of the run that is shown, and how the one before it ended, in sentences."""
        found = [self._where()] if shown.is_over else []
        if not shown.is_training and self.run.folder != self._given:
            found.append(f"a run that starts in {self._given} is shown next")
        return found + [self._before] * bool(self._before)

    def _where(self) -> str:
        return f"where its time went: perfkit analyze {shell_word(self.run.folder)}"


class Watch:
    """The state of a view of several runs."""

    def __init__(self, folders: Sequence[Path], sort: str) -> None:
        self._followed = [NewestRun(folder) for folder in folders]
        self.sort = sort
        self.paused = False
        self._views: list[RunView] = []
        self._events: list[list[str]] = [[] for _ in self._followed]
        self._next_read = self._next_events = 0.0
        self._trace: TraceRequest | None = None

    def read(self) -> None:
        """Read what is new, if it is time to and the view is not paused."""
        began = time.process_time()
        if self.paused or time.monotonic() < self._next_read:
            return
        for one in self._followed:
            one.run.read()
        if time.monotonic() >= self._next_events:
            self._look_around()
            began = time.process_time()
        shown = [(one, view(one.run, events)) for one, events in zip(self._followed, self._events, strict=True)]
        self._views = [replace(found, notes=one.notes(found)) for one, found in shown]
        busy = time.process_time() - began
        self._next_read = time.monotonic() + max(_SHORTEST_S, busy / _SHARE)

    def _look_around(self) -> None:
        """Turn to runs that have started since, and look for what happened."""
        began = time.process_time()
        for followed, shown in zip(self._followed, self._views, strict=False):  # without views at first
            followed.turn(shown)
        self._events = [find_events(followed.run) for followed in self._followed]
        self._next_events = time.monotonic() + max(5 * _SHORTEST_S, (time.process_time() - began) / _EVENTS_SHARE)

    def press(self, key: str) -> bool:
        """Do what a key asks for; return whether to go on."""
        if key == "p":
            self.paused = not self.paused
        if key == "s":
            orders = list(SORTS)
            self.sort = orders[(orders.index(self.sort) + 1) % len(orders)]
        if key == "c" and len(self._followed) == 1 and (self._trace is None or self._trace.is_over):
            self.close()
            self._trace = TraceRequest(self._followed[0].run.folder)
        return key not in {"q", "\x1b"}

    def close(self) -> None:
        """Withdraw the request for a trace, if there is one that has not been recorded."""
        if self._trace is not None:
            self._trace.stop()
            self._trace = None

    def show(self, console: Console) -> None:
        """Print one frame, as high as it needs to be."""
        self.read()
        console.print(draw(self._views, console.width, 40 * len(self._views), self.sort, paused=False, keys=False))

    def follow(self, console: Console) -> None:
        """Draw frames until the user quits."""
        with pressed_keys() as wait, Live(console=console, screen=True, auto_refresh=False) as live:
            try:
                while True:
                    self.read()
                    live.update(self._frame(console), refresh=True)
                    if not self._wait(wait):
                        return
            except KeyboardInterrupt:
                return
            finally:
                self.close()

    def _frame(self, console: Console) -> Group:
        message = self._trace.message() if self._trace else ""
        return draw(self._views, console.width, console.height, self.sort, paused=self.paused, keys=True, trace=message)

    def _wait(self, wait: Wait) -> bool:
        """Wait for a key or the time of the next frame; return whether to go on."""
        seconds = 3600.0 if self.paused else max(0.05, self._next_read - time.monotonic())
        if self._trace is not None and not self._trace.is_over:
            seconds = min(seconds, _SHORTEST_S)
        key = wait(seconds)
        return self.press(key) if key else True
