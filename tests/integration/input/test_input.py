"""Overlapped input, and input larger than memory: real runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import LIMIT_S, ROOT, environment, record_forked

GREEDY = """
import json, resource, sys
from pathlib import Path
import torch
from torch.utils.data import RandomSampler
from perfkit_workloads.data import SOURCES, DataOptions
from perfkit_workloads.data.loader import make_loader
from perfkit_workloads.transformer import Transformer, TransformerConfig

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
