"""`perfkit doctor`, as users run it: alone, and under mpiexec."""

import json
from pathlib import Path

import pytest

from perfkit.report.json_schema import schema
from tests.support.json_validation import jsonschema
from tests.support.processes.launching import MPIEXEC, PYTHON, execute, needs_mpiexec

ALWAYS = {"Python", "torch", "devices", "gloo", "profiler", "launcher", "cores", "h5py", "trace folder", "C++ compiler"}


@pytest.mark.slow
def test_the_diagnosis_of_this_machine_is_of_its_schema(tmp_path: Path) -> None:
    done = execute([*PYTHON, "doctor", "--json", "--trace-dir", str(tmp_path)])
    diagnosis = json.loads(done.stdout)
    jsonschema.validate(diagnosis, schema("doctor"))
    states = {check["name"]: check["state"] for check in diagnosis["checks"]}
    assert states.keys() >= ALWAYS
    assert {states[name] for name in ("Python", "torch", "gloo", "profiler", "h5py")} == {"ok"}
    assert done.returncode == int("problem" in states.values())


@needs_mpiexec
@pytest.mark.slow
def test_one_rank_of_several_prints_it(tmp_path: Path) -> None:
    done = execute([*MPIEXEC, *PYTHON, "doctor", "--trace-dir", str(tmp_path)])
    assert done.stdout.count("ok       Python") == 1
    assert "rank 0 of 2" in done.stdout
    assert "launcher: hydra: rank 0 of 2, local rank 0" in done.stdout
