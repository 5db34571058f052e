"""Launchers of libraries start `perfkit run SCRIPT` in place of the script, as README.md shows."""

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

import perfkit
from tests.integration.training_scripts.test_script import PLAIN_DDP, check_whole
from tests.support.processes.launching import BIN, LIMIT_S, environment
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.slow  # two imports of torch and of the launcher's library, one after the other

COMMANDS = {
    # Without a GPU, --cpu starts a single process, and --multi_gpu what torchrun does.
    "accelerate": "launch --multi_gpu --num_processes 2 --main_process_port PORT --no_python",
    "deepspeed": "--num_gpus 2 --master_port PORT --no_python --no_local_rank",
}


@pytest.mark.parametrize("library", COMMANDS)
def test_both_ranks_are_recorded(library: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    options = COMMANDS[library].replace("PORT", str(free_port())).split()
    traces = tmp_path / "traces"
    run = ["perfkit", "run", PLAIN_DDP, "--no-report", "--trace-dir", str(traces), "--", "--steps", "8"]
    path = os.pathsep.join((str(BIN), os.environ["PATH"]))
    done = subprocess.run(
        [str(BIN / library), *options, *run],
        env=environment() | {"PATH": path, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("mean loss") == 1
    assert "after 8 steps" in done.stdout
    (folder,) = traces.iterdir()
    check_whole(folder, world_size=2)
    (analysed,) = perfkit.analyze(folder, cache=False).runs
    assert [rank.rank for rank in analysed.ranks] == [0, 1]
    assert len(analysed.ranks[0].steps) == len(analysed.ranks[1].steps) > 0
