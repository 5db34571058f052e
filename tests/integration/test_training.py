"""Options of training, on real ranks: their effect is read from the traces.

The arithmetic of gradients is in tests/unit/record/training.
"""

import math
import subprocess
from pathlib import Path
from statistics import median

import pytest

import perfkit
from perfkit.records.manifest import RunManifest
from perfkit.records.rank import RankReport
from perfkit.records.run import RunReport
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest
from tests.integration.test_run import annotations, check_folder, messages, traces
from tests.support.processes.launching import LIMIT_S, NOT_THE_MACHINE, PYTHON, ROOT, SHORT, environment, record_forked

SIZES = {"layers": 2, "width": 64, "heads": 2, "block": 16, "vocab-size": 2048, "samples": 256, "bias": False}
GPT = ["gpt", *(f"--no-{k}" if v is False else f"--{k}={v}" for k, v in SIZES.items())]
ONE_LAYER = [word.replace("--layers=2", "--layers=1") for word in GPT]
STEPS = 5

Runs = dict[str, tuple[RunManifest, RunReport]]


def execute(
    folder: Path, *options: str, limit_s: float = LIMIT_S, **variables: str
) -> subprocess.CompletedProcess[str]:
    own = [*SHORT, *options[1:], "--threads", "1", "--trace-dir", str(folder), "--steps", str(STEPS)]
    command = [*PYTHON, "run", options[0], *own]
    return subprocess.run(
        command,
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        cwd=ROOT,
    )


def record(folder: Path, *options: str, limit_s: float = LIMIT_S) -> tuple[RunManifest, RunReport]:
    done = execute(folder, *options, limit_s=limit_s)
    assert done.returncode == 0, done.stderr
    # The last step is reported too, although it is a recorded one.
    last = [line for line in done.stderr.splitlines() if line.startswith("step ")][-1]
    assert last.startswith(f"step {STEPS}/{STEPS}, ")
    assert [line for line in done.stderr.splitlines() if not line.startswith("step ")] == []
    (run,) = perfkit.analyze(folder).runs
    return check_folder(Path(run.path)), run


def reduced(rank: RankReport) -> list[int | None]:
    """Return the bytes of the all-reduces of one step, in order of size; all steps have the same."""
    rows = [row for row in rank.collectives if row.operator == "all_reduce"]
    assert all(row.count % len(rank.steps) == 0 for row in rows)
    return sorted((row.bytes for row in rows for _ in range(row.count // len(rank.steps))), key=str)


def hidden_ns(rank: RankReport) -> int:
    return sum(step.total_ns.communication - step.exposed_ns.communication for step in rank.steps)


def losses(manifest: RunManifest) -> list[float | None]:
    return [loss for rank in manifest.ranks for loss in rank.loss]


RUNS = {
    "plain": "--batch-size 8",
    "micro-steps": "--batch-size 2 --accumulate 4 --pyinstrument",
    "apart": "--batch-size 8 --no-overlap",
    "small-buckets": "--batch-size 4 --accumulate 2 --static-graph --bucket-cap-mb 0.1",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return runs of two ranks that train alike, by name."""
    folder, common = tmp_path_factory.mktemp("runs"), " ".join([*GPT, *SHORT, "--threads", "1", "--steps", str(STEPS)])
    errors = record_forked(folder, 2, {name: f"{common} {options}" for name, options in RUNS.items()})
    assert messages(errors) == []
    # The last step is reported too, although it is a recorded one.
    assert errors.count(f"step {STEPS}/{STEPS}, ") == len(RUNS)
    return {name: (check_folder(folder / name), perfkit.analyze(folder / name).runs[0]) for name in RUNS}


@pytest.mark.slow
def test_micro_steps_are_one_step_with_one_averaging(runs: Runs) -> None:
    (whole, whole_run), (parts, parts_run) = runs["plain"], runs["micro-steps"]
    # The same samples in the same steps.
    assert parts.batch_size == whole.batch_size == 8
    assert losses(parts) == pytest.approx(losses(whole), rel=1e-4)
    assert parts.throughput is not None
    assert parts.throughput.samples_per_s == pytest.approx(2 * 8 * 1e9 / parts.throughput.step_ns)
    assert parts.throughput.tokens_per_s == pytest.approx(16 * parts.throughput.samples_per_s)
    for mine, other in zip(parts_run.ranks, whole_run.ranks, strict=True):
        assert reduced(mine) == reduced(other) != []
        assert {step.loads.count for step in mine.steps} == {4}
        waited_ns = median(step.loads.sum_ns for step in mine.steps)
        loaded_ns = median(parts.ranks[mine.rank or 0].load_ns[step.step or 0] for step in mine.steps)
        assert 0 < waited_ns < 1.1 * loaded_ns  # the annotation lies within the interval that the clock measures
    for trace in traces(Path(parts_run.path), parts):
        for phase in ("to_device", "forward", "backward"):
            assert len(annotations(trace, f"perfkit.{phase}")) == 4 * 3
        assert len(annotations(trace, "perfkit.optimizer")) == 3
    assert [file.rank for file in parts.files if file.kind == "python_profile"] == [0, 0, 0, 1, 1, 1]
    text = (Path(parts_run.path) / "rank0.pyinstrument.txt").read_text()
    assert "backward" in text
    assert "write_trace" not in text  # the recorded steps only


@pytest.mark.slow
def test_without_overlap_nothing_is_hidden_and_nothing_else_changes(runs: Runs) -> None:
    (overlapped, overlapped_run), (apart, apart_run) = runs["plain"], runs["apart"]
    assert apart.parameter_checksum == overlapped.parameter_checksum
    for mine, other in zip(apart_run.ranks, overlapped_run.ranks, strict=True):
        assert reduced(mine) == reduced(other) != []
        assert hidden_ns(mine) == 0
        assert median(step.exposed_ns.communication for step in mine.steps) > 0


@pytest.mark.slow
def test_small_buckets_of_a_static_graph_with_micro_steps(runs: Runs) -> None:
    (plain, plain_run), (manifest, run) = runs["plain"], runs["small-buckets"]
    assert losses(manifest) == pytest.approx(losses(plain), rel=1e-4)
    for mine, other in zip(run.ranks, plain_run.ranks, strict=True):
        assert len(reduced(mine)) > len(reduced(other))
        assert sum(size or 0 for size in reduced(mine)) == sum(size or 0 for size in reduced(other))
    # The first of many buckets is reduced while the rest of backward runs; a single bucket could not overlap.
    assert sum(map(hidden_ns, run.ranks)) > 0


@pytest.mark.slow
def test_lower_precision_with_checkpointed_activations(tmp_path: Path) -> None:
    options = ["--batch-size", "4", "--record-shapes", "--checkpoint-activations", "--precision", "bfloat16"]
    manifest, run = record(tmp_path, *GPT, *options)
    assert (manifest.config["precision"], manifest.config["checkpoint_activations"]) == ("bfloat16", True)
    assert manifest.throughput is not None
    assert "bfloat16" in (manifest.throughput.mfu_reason or "")  # the peak of that type was looked up
    assert losses(manifest)[0] == pytest.approx(math.log(2048), rel=0.1)  # it guesses
    (trace,) = traces(Path(run.path), manifest)
    types = {
        kind
        for event in trace["traceEvents"]
        if event.get("name") == "aten::addmm" or event.get("name") == "aten::mm"
        for kind in event["args"].get("Input type", [])
    }
    assert "c10::BFloat16" in types
    assert run.findings == []


@pytest.mark.slow
def test_silent_eager_is_said(tmp_path: Path) -> None:
    done = execute(tmp_path, *GPT, "--compile", TORCHDYNAMO_DISABLE="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("perfkit: warning: --compile compiled no graph") == 1
    (run,) = perfkit.analyze(tmp_path).runs
    assert [finding.code for finding in run.findings if finding.severity != "info"] == ["not_compiled"]
    compiled = read_manifest(Path(run.path)).compiled
    assert compiled is not None
    assert (compiled.graphs, compiled.steps) == (0, [])


@pytest.mark.slow  # imports the compiler
def test_a_missing_compiler_is_one_line(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    done = execute(tmp_path / "traces", *GPT, "--compile", CXX="/none/g++", TORCHINDUCTOR_CACHE_DIR=cache)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("perfkit: error: --compile: torch cannot compile the model")
    assert "install a C++ compiler" in line
    (folder,) = [path.parent for path in tmp_path.glob(f"traces/*/{MANIFEST_NAME}")]
    assert read_manifest(folder).state == "failed"


def test_what_this_device_does_not_have(tmp_path: Path) -> None:
    done = execute(tmp_path, *GPT, "--nccl-debug", "info", "--device", "cpu")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert done.stderr == "perfkit: error: --nccl-debug needs the backend nccl; this run uses gloo: remove it\n"


@pytest.mark.slow  # compiles a model
def test_compiled(tmp_path: Path) -> None:
    options = ["--batch-size", "8", "--compile", "--accumulate", "2"]
    manifest, run = record(tmp_path, *ONE_LAYER, "-n", "2", *options, limit_s=2 * LIMIT_S)
    assert manifest.compiled is not None
    assert manifest.compiled.graphs >= 1
    assert manifest.compiled.steps == [0]
    assert {finding.code for finding in run.findings} & NOT_THE_MACHINE == set()
    assert "compilation_hides_operators" in {finding.code for finding in run.findings}
    for trace in traces(Path(run.path), manifest):
        assert len(annotations(trace, "CompiledFunction")) > 0
        for phase in ("forward", "backward"):
            assert len(annotations(trace, f"perfkit.{phase}")) == 2 * 3
    for rank in run.ranks:
        assert reduced(rank) != []
