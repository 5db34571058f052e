"""A child that a recorded loop forks goes through the loop's own code: nothing of that may reach its parent's run."""

import os
import sys
from pathlib import Path

import pytest

import perfkit
from perfkit.storage.run_folder import read_manifest


def leave(how: str) -> None:
    if how == "exit":
        sys.exit(3)
    if how == "error":
        raise ValueError("of the child")


@pytest.mark.parametrize("how", ["end", "exit", "error"])
def test_a_forked_child_is_not_recorded(tmp_path: Path, how: str) -> None:
    parent, child = os.getpid(), 0
    try:
        with perfkit.monitor(tmp_path / "run", device="cpu") as mon:
            for step in range(6):
                if step == 3 and (child := os.fork()) == 0:
                    for _ in range(4):
                        mon.step(99.0)
                    leave(how)
                    break
                mon.step(float(step))
    finally:
        if os.getpid() != parent:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    manifest = read_manifest(mon.folder)
    steps = perfkit.steps(mon.folder)
    assert manifest.state == "completed"
    assert steps["step"].tolist() == list(range(6))
    assert steps["loss"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
