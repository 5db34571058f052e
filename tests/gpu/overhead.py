"""What the monitor costs per step on a device: blocks of steps with and without it, in turn, in one process."""

import json
import statistics
import sys
from pathlib import Path
from typing import Final

import torch

from perfkit.record.monitor.step_monitor import StepMonitor
from tests.gpu.train import WARM_UP, Trainer, time_steps

PAIRS: Final = 12
STEPS: Final = 20


def measure(folder: Path) -> dict[str, float]:
    """Return the step in ms and the monitor's cost: the median over pairs, with its 10th and 90th percentiles, ms."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trainer = Trainer("healthy", device, folder)
    time_steps(trainer, WARM_UP)
    plain, costs = [], []
    for _ in range(PAIRS):
        plain.append(time_steps(trainer, STEPS))
        costs.append(_monitored(trainer, folder) - plain[-1])
    tenths = statistics.quantiles(costs, n=10)
    return {"step_ms": statistics.median(plain), "cost_ms": statistics.median(costs), "10": tenths[0], "90": tenths[-1]}


def _monitored(trainer: Trainer, folder: Path) -> float:
    monitor = StepMonitor()
    monitor.install()
    monitor.open(folder, 0, 1, torch.device(trainer.device))
    monitor.begin_step()
    numbers, train = iter(range(STEPS)), trainer.step

    def step() -> None:
        train()
        monitor.end_step(next(numbers), "plain", None)
        monitor.begin_step()

    trainer.step = step  # type: ignore[method-assign]
    lasts = time_steps(trainer, STEPS)
    trainer.step = train  # type: ignore[method-assign]
    monitor.close()
    return lasts


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    (Path(sys.argv[1]) / "overhead.json").write_text(json.dumps(measure(Path(sys.argv[1]))))
