"""A training script whose idle time is known: functions that sleep, print, save, collect garbage and loop in Python.

It prints the time that each takes per recorded step, in nanoseconds, as JSON on its last line.
"""

import gc
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import torch


class Node:
    """Garbage that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


def nap() -> None:
    time.sleep(0.03)


def report(loss: torch.Tensor) -> None:
    for _ in range(300):
        print(loss.item(), file=sys.stderr, flush=True)


def tiny(x: torch.Tensor) -> None:
    for _ in range(2000):
        x = x + 1


def save(state: dict[str, torch.Tensor], folder: Path) -> None:
    torch.save(state, folder / "checkpoint.pt")


def clean() -> None:
    gc.collect()


def count() -> int:
    total = 0
    for number in range(400_000):
        total += number
    return total


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    model = torch.nn.Sequential(torch.nn.Linear(256, 16384), torch.nn.Linear(16384, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gc.disable()
    kept = [Node() for _ in range(50_000)]
    took_ns: dict[str, list[int]] = defaultdict(list)
    for _ in range(steps):
        x = torch.randn(16, 256)
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for function, arguments in (
            (nap, ()),
            (report, (loss,)),
            (tiny, (x,)),
            (save, (model.state_dict(), folder)),
            (clean, ()),
            (count, ()),
        ):
            begin_ns = time.perf_counter_ns()
            function(*arguments)
            took_ns[function.__name__].append(time.perf_counter_ns() - begin_ns)
    assert kept
    print(json.dumps(took_ns))


if __name__ == "__main__":
    main()
