"""Lightning's Trainer with perfkit's callback, which starts its two ranks itself: two batches per step, validation."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfkit.integrations.lightning import PerfkitCallback


class Digits(lightning.LightningModule):  # type: ignore[misc]  # lightning is not followed
    """A small classifier of two modules, which the loop calls one after the other."""

    def __init__(self, fail_in: int | None) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 64), nn.Linear(64, 10)
        self.fail_in = fail_in

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        if batch_idx == self.fail_in:
            raise ValueError("no luck")
        return nn.functional.cross_entropy(self.head(self.body(batch[0]).relu()), batch[1])

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.head(self.body(batch[0]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--fail-in", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    count = 8 * 2 * args.steps * args.devices
    data = TensorDataset(torch.randn(count, 64), torch.randint(0, 10, (count,)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=args.devices,
        strategy="ddp" if args.devices > 1 else "auto",
        max_steps=args.steps,
        accumulate_grad_batches=2,
        val_check_interval=8,
        limit_val_batches=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[PerfkitCallback(args.traces, schedule="wait=1,warmup=1,active=3")],
    )
    trainer.fit(Digits(args.fail_in), DataLoader(data, batch_size=8), DataLoader(data, batch_size=8))
    if trainer.global_rank == 0:
        print("trained", trainer.global_step)


if __name__ == "__main__":
    main()
