"""Records the steps of Lightning's Trainer.

::

    from perfkit.integrations.lightning import PerfkitCallback

    trainer = L.Trainer(..., callbacks=[PerfkitCallback("traces/mine")])
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from perfkit.integrations.recorder import FrameworkRecorder
from perfkit.options.recording import DetailName
from perfkit.options.schedule import DEFAULT_SCHEDULE


def _package() -> str:
    """Return the package of the program's Trainer: the two have separate classes, and both may be installed."""
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        return "pytorch_lightning"
    return "lightning.pytorch"


_Callback: Any = import_module(_package()).Callback


class PerfkitCallback(_Callback):  # type: ignore[misc]  # imported by name
    """Records the Trainer's optimizer steps: with `accumulate_grad_batches`, one is several batches.

    Forward, backward and the optimizer's step are annotated; with manual optimization backward only, because a
    `training_step` may then consist of several. Validation is no part of a step. Ranks that the Trainer starts itself
    are recorded like those of a launcher. Under `perfkit run`, which does the recording, it only marks where the
    Trainer's steps end.

    Args:
        folder: The run's folder; `mine-2`, `mine-3`, … if it exists already.
        schedule: Which steps are recorded, as for `perfkit.profile`.
        detail: `why` also records what it takes to name causes.
        trace_ranks: Ranks that record fully, such as `0,7` or `per-host`; the others leave light traces.

    Raises:
        UsageError: The schedule is invalid.
    """

    def __init__(
        self,
        folder: str | Path = "traces/lightning",
        *,
        schedule: str = DEFAULT_SCHEDULE,
        detail: DetailName = "time",
        trace_ranks: str | None = None,
    ) -> None:
        super().__init__()
        self._recorder = FrameworkRecorder(folder, schedule, detail, trace_ranks, passes=False)
        self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._steps = trainer.global_step
        self._recorder.begin(type(pl_module).__name__, pl_module.device)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin the forward pass."""
        if pl_module.automatic_optimization:
            self._recorder.begin_phase("forward")

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        self._recorder.begin_phase("backward")

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        self._recorder.end_phase()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Begin the optimizer's step, which lasts to the end of the batch."""
        if pl_module.automatic_optimization:
            self._recorder.begin_phase("optimizer")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End a step, if an optimizer has stepped since the last one."""
        self._recorder.end_phase()
        if trainer.global_step != self._steps:
            self._steps = trainer.global_step
            self._recorder.step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an evaluation; the one before training is not recorded."""
        self._recorder.begin_phase("evaluation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._recorder.end_phase()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Mark the run as failed."""
        self._recorder.end(exception)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._recorder.end()
