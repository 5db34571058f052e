"""A loop with Accelerate and two micro-batches per step, recorded by one line."""

import argparse

import torch
from accelerate import Accelerator
from model import Net  # type: ignore[import-not-found]
from torch.utils.data import DataLoader, TensorDataset

from perfkit.integrations.accelerate import record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net(64)
    samples = 16 * args.steps * args.accumulate * accelerator.num_processes
    data = TensorDataset(torch.randn(samples, 64), torch.randint(0, 10, (samples,)))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters()), DataLoader(data, batch_size=16)
    )
    record(accelerator, optimizer, args.traces)
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print("trained on", accelerator.num_processes)
    accelerator.end_training()


if __name__ == "__main__":
    main()
