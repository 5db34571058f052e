"""Evaluates the model between steps: the mean loss of samples that it is trained on, and of others."""

from typing import Any

import numpy as np
import torch

from perfkit.options.run import RunConfig
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.messages import print_status
from perfkit.record.recording.recording import Recording
from perfkit.record.training.trainer import Trainer
from perfkit_workloads.base import EVALUATION_PARTS, Arrays, EvaluationPart, Workload


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
