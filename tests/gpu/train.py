"""A small language model on one device, with a fault of which the cost is known; it does not import perfkit.

Usage: python train.py --fault NAME --steps N          train N steps
       python train.py --measure NAME,NAME --steps N   print what each fault costs, timed without any profiler
"""

import argparse
import contextlib
import gc
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY: Final = 8192
SIZES: Final = {"cuda": (32, 512, 1024, 8), "cpu": (2, 16, 64, 2)}
"""Sequences, tokens in each, width and layers."""
TINY_KERNELS: Final = 1500
ALLOCATIONS: Final = 400_000
PAGEABLE_BYTES: Final = 64 << 20
SLEEP_S: Final = 0.012
CHECKPOINT_EVERY: Final = 4
WARM_UP: Final = 8


class Tokens(Dataset[torch.Tensor]):
    """Random tokens; `read_slowly` takes 1 ms of the processor per sequence."""

    def __init__(self, shape: tuple[int, int], read_slowly: bool) -> None:
        self.tokens = torch.randint(VOCABULARY, shape)
        self.read_slowly = read_slowly

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.read_slowly:
            tokenize()
        return self.tokens[index % len(self.tokens)]


def tokenize() -> None:
    until = time.perf_counter() + 1e-3
    while time.perf_counter() < until:
        sum(range(100))


class Block(nn.Module):
    """Attention and a perceptron, both with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        whole: torch.Tensor = x + self.mlp(self.second(x))
        return whole


class Model(nn.Module):
    """The blocks between an embedding and a projection to the vocabulary."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.blocks(self.embedding(tokens)))
        return logits


class Trainer:
    """One training run; `fault` changes one thing of its step."""

    def __init__(self, fault: str, device: str, folder: Path) -> None:
        self.fault, self.device, self.folder = fault, device, folder
        batch, length, width, layers = SIZES[device]
        torch.manual_seed(0)
        self.model = Model(width, layers).to(device)
        self.step_number = 0
        if fault == "hook":
            next(iter(self.model.blocks)).register_full_backward_hook(slow_hook)
        if fault == "item":
            for block in self.model.blocks:
                block.register_forward_hook(check_finite)
        self.forward: Callable[[torch.Tensor], torch.Tensor] = self.model
        if fault == "compile":
            self.forward = torch.compile(self.model)
        if fault == "graphs":
            self.forward = torch.compile(self.model, mode="reduce-overhead")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4, foreach=fault != "loop_optimizer")
        data = Tokens((64, length), read_slowly=fault == "loader")
        loader = DataLoader(data, batch, shuffle=False, pin_memory=device == "cuda")
        self.batches = itertools.chain.from_iterable(itertools.repeat(loader))
        self.tiny = torch.ones(64, device=device)
        self.garbage = [[i] for i in range(ALLOCATIONS)] if fault == "gc" else []
        self.pageable = torch.ones(PAGEABLE_BYTES // 4) if fault == "pageable" else None
        if fault == "fragmentation" and device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(9e9 / torch.cuda.get_device_properties(0).total_memory)

    def step(self) -> None:
        """Train one step."""
        tokens = next(self.batches)
        if self.fault == "fragmentation":
            tokens = tokens[:, : tokens.shape[1] - 32 * (self.step_number * 5 % 9)]
        tokens = tokens.to(self.device, non_blocking=True)
        if self.pageable is not None:
            self.pageable.to(self.device)
        if self.fault == "retries":
            torch.cuda.empty_cache() if self.device == "cuda" else time.sleep(1e-3)
        with torch.autocast(self.device, torch.bfloat16):
            logits = self.forward(tokens)
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        if self.fault == "small_kernels":
            scale_gradients(self.tiny)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.fault == "gc":
            gc.collect()
        self.step_number += 1
        if self.fault == "checkpoint" and self.step_number % CHECKPOINT_EVERY == 0:
            torch.save(self.model.state_dict(), self.folder / "model.pt")


def slow_hook(module: nn.Module, *gradients: object) -> None:
    time.sleep(SLEEP_S)


def check_finite(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
    if output.abs().max().item() == float("inf"):
        raise OverflowError("an activation overflows")


def scale_gradients(tiny: torch.Tensor) -> None:
    for _ in range(TINY_KERNELS):
        tiny.mul_(1.0)


def time_steps(trainer: Trainer, steps: int) -> float:
    """Return the mean duration of a step in ms, the device's work included."""
    synchronize(trainer.device)
    begin = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    synchronize(trainer.device)
    return (time.perf_counter() - begin) / steps * 1e3


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(faults: list[str], steps: int, device: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return step times of each fault, with that of the healthy program before and after it, ms."""
    healthy = Trainer("healthy", device, folder)
    time_steps(healthy, WARM_UP)
    measured: dict[str, dict[str, Any]] = {}
    for fault in faults:
        before = time_steps(healthy, steps)
        with tried(measured.setdefault(fault, {})):
            trainer = Trainer(fault, device, folder)
            time_steps(trainer, WARM_UP)
            lasts = time_steps(trainer, steps)
            del trainer
            gc.collect()
            if device == "cuda":
                torch.cuda.set_per_process_memory_fraction(1.0)
            measured[fault] |= {"step_ms": lasts, "healthy_ms": (before + time_steps(healthy, steps)) / 2}
    return measured


@contextlib.contextmanager
def tried(record: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - one fault that fails must not cost the others' device time
        record["error"] = str(error).splitlines()[0]


def main() -> None:
    """Train or measure, as the command line says."""
    options = argparse.ArgumentParser()
    options.add_argument("--fault", default="healthy")
    options.add_argument("--measure", default="")
    options.add_argument("--steps", type=int, default=28)
    options.add_argument("--folder", type=Path, default=Path())
    chosen = options.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if chosen.measure:
        measured = measure(chosen.measure.split(","), chosen.steps, device, chosen.folder)
        (chosen.folder / "measured.json").write_text(json.dumps(measured))
        return
    trainer = Trainer(chosen.fault, device, chosen.folder)
    for _ in range(chosen.steps):
        trainer.step()
    synchronize(device)


if __name__ == "__main__":
    main()
