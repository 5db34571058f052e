"""What follows the steps of a recording is registered once for all ways in."""

import json
import sys
from pathlib import Path

from tests.support.processes.launching import execute

TRAIN = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


def test_a_listener_follows_workload_loop_framework_and_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = execute(
        [sys.executable, "-m", "tests.support.processes.four_ways", *map(str, (tmp_path, tmp_path / "train.py"))]
    )
    heard = json.loads((tmp_path / "heard.json").read_text())
    assert heard == {name: ["begin", *3 * ["step"], "end"] for name in ("workload", "loop", "framework", "script")}, (
        done.stderr
    )
