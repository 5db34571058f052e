"""The example package with one plug-in of each kind, installed by pip and used on the command line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, environment
from tests.support.traces.trace_builder import TraceBuilder

EXAMPLE = ROOT / "tests" / "plugins" / "perfkit_example"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-compile", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(EXAMPLE)], check=True, timeout=LIMIT_S)
    return folder


@pytest.fixture(scope="module")
def run_folder(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    traces = tmp_path_factory.mktemp("traces")
    options = ["--source", "npy", "--no-npy-mmap", "--depth", "1", "--samples", "256", "--threads", "1"]
    done = execute(packages, "run", "mlp", *options, "--trace-dir", str(traces), "--name", "mine")
    assert done.returncode == 0, done.stderr
    return traces / "mine"


def execute(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(packages), str(ROOT)))
    return subprocess.run(
        [*PYTHON, *arguments],
        env=environment() | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_the_help_lists_names_and_options(packages: Path) -> None:
    listed = execute(packages, "run", "--help")
    assert "mlp" in listed.stdout
    assert "--depth" in execute(packages, "run", "mlp", "--help-all").stdout
    assert "--npy-mmap" in execute(packages, "run", "mlp", "--source", "npy", "--help-all").stdout


def test_workload_and_source(run_folder: Path) -> None:
    manifest = json.loads((run_folder / "run.json").read_text())
    assert (manifest["state"], manifest["workload"], manifest["source"]) == ("completed", "mlp", "npy")
    assert manifest["config"]["npy_mmap"] is False
    assert manifest["versions"]["numpy"]


@pytest.mark.slow
def test_the_source_is_measured_and_divided_like_any_other(packages: Path, tmp_path: Path) -> None:
    options = ["--samples", "128", "--sample-size", "4K", "--repeats", "1", "--threads", "1", "--files", "2"]
    file = tmp_path / "input.json"
    more = ["--source", "memory,npy", "--data-dir", str(tmp_path / "data"), "-o", str(file)]
    done = execute(packages, "input", *options, *more)
    assert done.returncode == 0, done.stderr
    record = json.loads(file.read_text())
    assert [(one["source"], one["files"]) for one in record["files"]] == [("npy", 2)]
    assert {row["cache"] for row in record["measurements"] if record["series"][row["series"]]["source"] == "npy"} == {
        *("cold", "warm")
    }


def test_reporter_and_executor(packages: Path, run_folder: Path, tmp_path: Path) -> None:
    files = [tmp_path / "report.prom", tmp_path / "report.json"]
    outputs = [option for file in files for option in ("-o", str(file))]
    done = execute(packages, "analyze", str(run_folder), "--executor", "threads", "--no-cache", *outputs)
    assert (done.returncode, [line.split()[:2] for line in done.stderr.splitlines()]) == (
        0,
        [["Wrote", str(file)] for file in files],
    )
    assert files[0].read_text().splitlines()[1].startswith('perfkit_step_seconds{run="mine"} ')
    assert json.loads(files[1].read_text())["runs"][0]["run"] == "mine"
    assert execute(packages, "analyze", str(run_folder), "-f", "prometheus").stdout == files[0].read_text()


def test_accelerator(packages: Path, tmp_path: Path) -> None:
    """Work, launches and collectives of a device that perfkit has never heard of."""
    builder = TraceBuilder(0, 1).step(0, 0, 100)
    builder.launch(7, 1, 1, name="toyLaunch", cat="toy_runtime").device("toy_op", "toyMatmul", 10, 20, 7, 7)
    trace = builder.kernel("tcclAllReduce", 40, 30).write(tmp_path / "rank0.json")
    exposed = []
    for path in (packages, ROOT):
        done = execute(path, "analyze", str(trace), "-f", "json", "--no-cache")
        assert done.returncode == 0, done.stderr
        (step,) = json.loads(done.stdout)["runs"][0]["ranks"][0]["steps"]
        exposed.append((step["exposed_ns"]["compute"], step["exposed_ns"]["communication"]))
    assert exposed == [(20_000, 30_000), (30_000, 0)]  # without the plug-in: an unknown event, an unknown kernel


def test_a_broken_package_costs_one_line(packages: Path, run_folder: Path, tmp_path: Path) -> None:
    """Another package whose plug-ins all fail to load."""
    metadata = tmp_path / "perfkit_broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: perfkit-broken\nVersion: 1.0\n")
    groups = ("workloads", "sources", "reporters", "subjects", "executors", "accelerators")
    entries = "".join(f"[perfkit.{group}]\nbroken = perfkit_broken:X\n" for group in groups)
    (metadata / "entry_points.txt").write_text(entries)
    both = Path(os.pathsep.join((str(packages), str(tmp_path))))
    done = execute(both, "analyze", str(run_folder), "--no-cache", "-f", "csv")
    assert done.returncode == 0
    cause = "cannot be loaded: ModuleNotFoundError: No module named 'perfkit_broken'"
    assert sorted(done.stderr.splitlines()) == [
        f"perfkit: warning: accelerator 'broken' of perfkit-broken 1.0 {cause}",
        f"perfkit: warning: subject 'broken' of perfkit-broken 1.0 {cause}",
    ]
    two = [str(shutil.copytree(run_folder, tmp_path / "runs" / name)) for name in ("a", "b")]
    parallel = execute(both, "analyze", *two, "--no-cache", "-f", "csv", "--executor", "processes", "--workers", "2")
    assert sorted(parallel.stderr.splitlines()) == sorted(done.stderr.splitlines())  # workers repeat nothing
    asked = execute(both, "run", "broken")
    assert (asked.returncode, asked.stderr) == (1, f"perfkit: error: workload 'broken' of perfkit-broken 1.0 {cause}\n")


def test_a_subject_is_a_section_and_a_record(packages: Path, run_folder: Path) -> None:
    shown = execute(packages, "analyze", str(run_folder), "--section", "long-operators", "--no-cache")
    assert shown.returncode == 0, shown.stderr
    report = json.loads(execute(packages, "analyze", str(run_folder), "--json", "--no-cache").stdout)
    (run,) = report["runs"]
    longest = {row["name"] for rank in run["ranks"] for row in rank["operators"] if row["max_ns"] > 1_000_000}
    assert set(run["subjects"]["long-operators"]) == longest
    assert ("Operators that took more than 1 ms" in shown.stdout) == bool(longest)


def test_a_subject_has_losses(packages: Path, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10_000).op("aten::mm", 0, 8000)
    trace = builder.launch(0, 1, 1).kernel("gemm", 10, 9000, 0).write(tmp_path / "rank0.json")
    report = json.loads(execute(packages, "analyze", str(trace), "--json", "--no-cache").stdout)
    (found,) = [one for one in report["insights"] if one["rule"] == "long_operator"]
    assert (found["sentence"], found["potential_saving_ns"]) == ("gemm takes 9.00 ms per step", 9_000_000)
    assert found["recommendation"] == "divide it over more ranks"
