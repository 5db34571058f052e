"""A run of a workload and a source that another package adds."""

import os
import subprocess
from pathlib import Path

import pytest

from perfkit.storage.run_folder import read_manifest
from tests.support.plugin_package import install
from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, environment


@pytest.mark.slow  # test_plugins trains the example package in `make test`
def test_a_plugin_is_trained_and_recorded(tmp_path: Path) -> None:
    install(tmp_path)
    options = ["--source", "ram", "--ram-banks", "2", "--no-profile", "--steps", "2", "--threads", "1"]
    command = [*PYTHON, "run", "mlp", *options, "--trace-dir", str(tmp_path), "--name", "run"]
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run(
        command, env=environment() | path, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    manifest = read_manifest(tmp_path / "run")
    assert (manifest.state, manifest.workload, manifest.source) == ("completed", "mlp", "ram")
    assert {"ram_banks": 2, "width": 8, "batch_size": 4}.items() <= manifest.config.items()
    assert "hdf5_chunk" not in manifest.config
    assert manifest.versions["pk_plugins"] == "1.2"
