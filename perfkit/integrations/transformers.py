"""Records the steps of Hugging Face's Trainer.

::

    from perfkit.integrations.transformers import PerfkitCallback

    trainer = Trainer(..., callbacks=[PerfkitCallback("traces/mine")])
"""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from perfkit.integrations.recorder import FrameworkRecorder
from perfkit.options.recording import DetailName
from perfkit.options.schedule import DEFAULT_SCHEDULE
from perfkit.record.recording.throughput import StepWork
from perfkit.records.per_run.pauses import PausePhase


class PerfkitCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not followed
    """Records the Trainer's steps: with gradient accumulation, one is several micro-batches.

    Forward, backward and the optimizer's step are annotated. Logging, evaluations and checkpoints are no part of a
    step. Under `perfkit run`, which does the recording, it only marks where the Trainer's steps end.

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
        folder: str | Path = "traces/trainer",
        *,
        schedule: str = DEFAULT_SCHEDULE,
        detail: DetailName = "time",
        trace_ranks: str | None = None,
    ) -> None:
        self._recorder = FrameworkRecorder(folder, schedule, detail, trace_ranks, passes=True)
        self._planned: list[PausePhase] = []
        self._logged_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._planned, self._logged_step = [], 0
        self._recorder.begin(type(kwargs["model"]).__name__, args.device, _work(args, state))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that a batch is there: nothing pauses any more."""
        self._pause([])

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recorder.begin_phase("optimizer")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recorder.end_phase()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step, and begin what the Trainer is about to do after it."""
        self._recorder.step()
        self._plan(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin what the Trainer is about to do after an epoch."""
        self._plan(state, control)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End logging; an evaluation logs too, as a part of it."""
        if self._planned[:1] == ["logging"]:
            self._logged_step = state.global_step
            self._pause(self._planned[1:])

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._planned[:1] == ["evaluation"]:
            self._pause(self._planned[1:])

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._pause([])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._pause([])
        self._recorder.end()

    def _plan(self, state: Any, control: Any) -> None:
        """Begin the first of what the Trainer is about to do, always in this order; each event of its end is known."""
        wanted: dict[PausePhase, bool] = {
            "logging": control.should_log and state.global_step > self._logged_step,
            "evaluation": control.should_evaluate,
            "checkpoint": control.should_save,
        }
        self._pause([phase for phase, due in wanted.items() if due])

    def _pause(self, phases: list[PausePhase]) -> None:
        self._planned = phases
        if phases:
            self._recorder.begin_phase(phases[0])
        else:
            self._recorder.end_phase()


def _work(args: Any, state: Any) -> StepWork | None:
    """Return what a rank does per step; None if ranks share samples in ways that the arguments alone do not tell."""
    if getattr(args, "parallelism_config", None) is not None:
        return None
    size = getattr(state, "train_batch_size", None) or args.train_batch_size
    return StepWork(batch_size=size * args.gradient_accumulation_steps)
