"""Training with a trainer library: accelerate owns the process group, the loader and the optimizer."""

import argparse
import gc

import torch
from accelerate import Accelerator
from model import Net  # type: ignore[import-not-found]
from torch.utils.data import DataLoader, TensorDataset

from perfkit.integrations.accelerate import record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--traces", help="record the loop into this folder")
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
    if args.traces:
        record(accelerator, optimizer, args.traces, schedule="wait=1,warmup=1,active=3")
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print("trained on", accelerator.num_processes)
    # By itself, too, this script sometimes aborts without it: a thread of gloo's must not outlive the interpreter.
    del model, optimizer, loader
    accelerator.free_memory()
    gc.collect()
    accelerator.end_training()


if __name__ == "__main__":
    main()
