"""Overlapped input, and input larger than memory: real runs."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

import perfkit
from perfkit.records.run import RunReport
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, environment, execute, record_forked


def record(trace_dir: Path, name: str, *options: str) -> RunReport:
    command = [*PYTHON, "run", *options, "--threads", "1", "--trace-dir", str(trace_dir), "--name", name]
    done = execute(command)
    assert done.returncode == 0, done.stderr
    (report,) = perfkit.analyze(trace_dir / name).runs
    return report


@pytest.mark.slow  # compares wall times of two runs
@pytest.mark.timing
@pytest.mark.flaky(reruns=2)  # other programs on the machine change wall times
def test_prefetching_hides_the_load_and_the_report_still_shows_it(tmp_path: Path) -> None:
    # Slow reads (each sample unpacks a whole chunk, larger than HDF5's cache) beside longer steps.
    slow = ["transformer", "--samples", "256", "--batch-size", "8", "--source", "hdf5", "--read", "per-sample"]
    slow += ["--hdf5-chunk", "64", "--hdf5-compression", "gzip", "--steps", "12"]
    slow += ["--schedule", "wait=4,warmup=1,active=6"]
    direct = record(tmp_path, "direct", *slow)
    ahead = record(tmp_path, "ahead", *slow, "--num-workers", "1", "--prefetch", "4")
    waits = [run.ranks[0].steps for run in (direct, ahead)]
    exposed = [median(step.exposed_ns.data_loading for step in steps) for steps in waits]
    assert exposed[1] < exposed[0] / 2
    # Overlapped, not gone: every step still has its load, as short as the wait for it.
    assert all(step.loads.count == 1 for steps in waits for step in steps)
    assert all(rank.data_loading is not None for rank in (direct, ahead))


GREEDY = """
import json, resource, sys
from pathlib import Path
import torch
from torch.utils.data import RandomSampler
from workloads.data import SOURCES, DataOptions
from workloads.data.loader import make_loader
from workloads.transformer import Transformer, TransformerConfig

source, samples, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
workload = Transformer(TransformerConfig(samples=samples))
spec, options = workload.data_spec(0), DataOptions(source=source, data_dir=folder)
reader = SOURCES.load(source)
reader = reader(reader.Config())
path = reader.prepare(workload, spec, options)

def anonymous():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(fields["RssAnon"].split()[0])

# Anonymous memory only: the kernel may reclaim the pages of a mapped file.
before = anonymous()
dataset = reader.dataset(workload, spec, path, options)
most = 0
for batch in make_loader(dataset, RandomSampler(dataset), options, 32):
    most = max(most, anonymous() - before)
print(json.dumps({"file": path.stat().st_size, "grown": most}))
"""


@pytest.mark.slow  # writes and reads 200 MB
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize("source", ["hdf5", "safetensors"])
def test_a_data_set_may_be_larger_than_memory(source: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", GREEDY, source, "6000", str(tmp_path)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["file"] > 200 << 20
    assert figures["grown"] < figures["file"] / 4


@pytest.mark.slow
def test_ranks_that_receive_their_batches_train_as_ranks_that_read_them(tmp_path: Path) -> None:
    common = "gpt --samples 256 --steps 6 --no-profile --source pt --threads 1"
    cases = {"own": "", "received": "--readers 1", "of-workers": "--readers 1 --num-workers 1"}
    record_forked(tmp_path, 2, {name: f"{common} {options}" for name, options in cases.items()})
    own, *received = ([rank.loss for rank in read_manifest(tmp_path / name).ranks] for name in cases)
    assert received == [own, own]
