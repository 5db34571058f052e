"""Writes the model and its optimizer between steps, into the run's folder; a whole one replaces the one before."""

from pathlib import Path
from typing import Final

import torch

from perfkit.options.run import RunConfig
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.recording.pause_log import written_bytes
from perfkit.record.recording.recording import Recording
from perfkit.record.training.trainer import Trainer

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
