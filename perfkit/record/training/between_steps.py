"""What a workload does between steps: checkpoints, and evaluations.

A checkpoint is of the model and its optimizer, in the run's folder; a whole one replaces the one before. An evaluation
is the mean loss of samples that the model is trained on, and of others.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from perfkit.options.run import RunConfig
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.messages import print_status
from perfkit.record.recording.pause_log import written_bytes
from perfkit.record.recording.recording import Recording
from perfkit.record.training.trainer import Trainer
from perfkit_workloads.base import EVALUATION_PARTS, Arrays, EvaluationPart, Workload

FILE_NAME: Final = "checkpoint.pt"
FOLDER_NAME: Final = "checkpoint-step{}"


class Checkpoints:
    """Writes a checkpoint every so many steps.

    With whole copies of the model on all ranks, rank 0 writes one file while the others go on. Where ranks share the
    model, each writes its part by torch.distributed.checkpoint.
    """

    def __init__(self, run: RunConfig, ranks: ProcessRankGroup, folder: Path) -> None:
        self._every = run.checkpoint_interval or 0
        self._is_whole = run.dp == "ddp" and "tp" not in run.layout(ranks.world_size).sizes
        self._ranks, self._folder = ranks, folder

    def after_step(self, trainer: Trainer, recording: Recording) -> None:
        if recording.steps % self._every:
            return
        if self._is_whole:
            if self._ranks.rank == 0:
                path = self._folder / FILE_NAME
                new = path.with_suffix(".tmp")
                with recording.pause("checkpoint") as pause:
                    torch.save({"step": recording.steps, **trainer.state()}, new)
                    new.replace(path)
                    pause.wrote(path.stat().st_size)
            return
        from torch.distributed.checkpoint import state_dict_saver  # takes time to import

        folder = self._folder / FOLDER_NAME.format(recording.steps)
        with recording.pause("checkpoint") as pause:
            state_dict_saver.save(trainer.sharded_state(), checkpoint_id=folder)
            pause.wrote(written_bytes(folder) or 0)


class Evaluation:
    """Evaluates every so many steps, on all ranks, each replica on its own samples."""

    def __init__(self, workload: Workload[Any], run: RunConfig, ranks: ProcessRankGroup) -> None:
        self._workload, self._ranks = workload, ranks
        self._every, self._batch = run.eval_interval or 0, run.batch_size
        layout = run.layout(ranks.world_size)
        own, count = layout.replica(ranks.rank), run.eval_batches * run.batch_size
        self._samples = {
            part: {
                name: np.ascontiguousarray(array[own * count : (own + 1) * count])
                for name, array in _samples(workload, part, run.seed, count * layout.replicas).items()
            }
            for part in EVALUATION_PARTS
        }

    def after_step(self, trainer: Trainer, recording: Recording) -> None:
        if recording.steps % self._every:
            return
        with recording.pause("evaluation"):
            losses = {part: self._mean_loss(trainer, samples) for part, samples in self._samples.items()}
        if self._ranks.rank == 0:
            shown = ", ".join(f"{part} loss {loss:.4f}" for part, loss in losses.items())
            print_status(f"step {recording.steps}: {shown}", bare=True)

    def _mean_loss(self, trainer: Trainer, samples: Arrays) -> float:
        count = len(next(iter(samples.values())))
        with trainer.evaluating() as model:
            losses = [
                self._workload.loss(
                    model,
                    {n: torch.from_numpy(a[at : at + self._batch]).to(trainer.device) for n, a in samples.items()},
                ).float()
                for at in range(0, count, self._batch)
            ]
        own = float(torch.stack(losses).mean().item())
        return float(np.mean(self._ranks.all_gather(own)))


def _samples(workload: Workload[Any], part: EvaluationPart, seed: int, count: int) -> Arrays:
    samples = workload.evaluation_samples(part, seed, count)
    if samples is None:
        raise ValueError("the workload has no samples for evaluation")
    return samples
