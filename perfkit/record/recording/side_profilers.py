"""Profilers that record the same steps as torch.profiler, beside it: pyinstrument, and torch's memory history."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from perfkit.base.atomic_write import atomic_write, private_folder
from perfkit.base.formatting import install_extra
from perfkit.errors import LaunchEnvironmentError
from perfkit.options.recording import CommandOptions
from perfkit.options.run import RunConfig
from perfkit.record.step_listener import Recorder

MEMORY_EVENTS: Final = 100_000
"""How many of the latest allocations and frees torch's memory history keeps."""


class PythonProfile(Recorder):
    """pyinstrument: where this thread's time goes in Python code, by sampling."""

    def __init__(self) -> None:
        self._profiler: Any = None

    def start(self) -> None:
        from pyinstrument import Profiler

        self._profiler = Profiler(async_mode="disabled")
        self._profiler.start()

    def stop(self) -> None:
        if self._profiler is not None and self._profiler.is_running:
            self._profiler.stop()

    def write(self, stem: Path) -> None:
        from pyinstrument.renderers import SpeedscopeRenderer

        texts = {
            "html": self._profiler.output_html(),
            "speedscope.json": self._profiler.output(SpeedscopeRenderer()),
            "txt": self._profiler.output_text(unicode=True, color=False),
        }
        for ending, text in texts.items():
            with atomic_write(stem.with_name(f"{stem.name}.pyinstrument.{ending}")) as stream:
                stream.write(text.encode())


class MemoryHistory(Recorder):
    """torch's own record of allocations with their stacks, for pytorch.org/memory_viz.

    It begins on construction, before the model is built, so that every block of a snapshot has its stack.
    """

    def __init__(self) -> None:
        import torch  # a script that only asks for pyinstrument imports it itself

        torch.cuda.memory._record_memory_history(max_entries=MEMORY_EVENTS)

    def write(self, stem: Path) -> None:
        import torch

        target = stem.with_name(f"{stem.name}.memory.pickle")
        with private_folder(target) as folder:
            torch.cuda.memory._dump_snapshot(str(folder / target.name))  # type: ignore[no-untyped-call]
            (folder / target.name).replace(target)


def make_recorders(options: CommandOptions) -> list[Recorder]:
    """Return the profilers that the options ask for; of a workload, call it before the model is built."""
    recorders: list[Recorder] = []
    if options.pyinstrument:
        recorders.append(PythonProfile())
    if isinstance(options, RunConfig) and options.memory_snapshot:
        recorders.append(MemoryHistory())
    return recorders


def check_recorders(options: CommandOptions) -> None:
    """Check that the profilers that the options ask for are installed."""
    if options.pyinstrument and find_spec("pyinstrument") is None:
        raise LaunchEnvironmentError(
            f"--pyinstrument needs pyinstrument, which is not installed: {install_extra('run')}"
        )
