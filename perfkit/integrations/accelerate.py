"""Records the steps of a loop that uses Hugging Face's Accelerate.

::

    from perfkit.integrations.accelerate import record

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    record(accelerator, optimizer, "traces/mine")
    ...
    accelerator.end_training()
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfkit.integrations.recorder import FrameworkRecorder
from perfkit.options.recording import DetailName
from perfkit.options.schedule import DEFAULT_SCHEDULE
from perfkit.records.common import UNNAMED


def record(
    accelerator: Any,
    optimizer: Any,
    folder: str | Path = "traces/accelerate",
    *,
    workload: str = UNNAMED,
    schedule: str = DEFAULT_SCHEDULE,
    detail: DetailName = "time",
    trace_ranks: str | None = None,
) -> FrameworkRecorder:
    """Record every step of a prepared optimizer until `accelerator.end_training()`.

    A step ends with `optimizer.step()`; with gradient accumulation, with that of the last micro-batch. Forward,
    backward and the optimizer's step are annotated. Under `perfkit run`, which records by itself, only the ends of
    steps are noted.

    Args:
        accelerator: The `Accelerator`.
        optimizer: What `accelerator.prepare` has returned for the optimizer whose steps count.
        folder: The run's folder; `mine-2`, `mine-3`, … if it exists already.
        workload: Name of the workload in reports.
        schedule: Which steps are recorded, as for `perfkit.profile`.
        detail: `why` also records what it takes to name causes.
        trace_ranks: Ranks that record fully, such as `0,7` or `per-host`; the others leave light traces.

    Raises:
        UsageError: The schedule is invalid.
    """
    recorder = FrameworkRecorder(folder, schedule, detail, trace_ranks, passes=True)
    optimizer.step = _recorded_step(accelerator, optimizer.step, recorder)
    end_training = accelerator.end_training

    @functools.wraps(end_training)
    def end() -> None:
        recorder.end()
        end_training()

    accelerator.end_training = end
    recorder.begin(workload, accelerator.device)
    return recorder


def _recorded_step(accelerator: Any, optimizer_step: Callable[..., Any], recorder: FrameworkRecorder) -> Any:
    @functools.wraps(optimizer_step)
    def step(*args: Any, **kwargs: Any) -> Any:
        if not accelerator.sync_gradients:
            return optimizer_step(*args, **kwargs)
        recorder.begin_phase("optimizer")
        result = optimizer_step(*args, **kwargs)
        recorder.step()
        return result

    return step
