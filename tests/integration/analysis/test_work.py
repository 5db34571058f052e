"""Whose time it is in a real run of two ranks, against what its traces' JSON alone shows."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import perfkit
from perfkit.records.per_rank.work_trees import paths_of

SCRIPT = Path(__file__).with_name("heavy_module.py")
SQUARE = [[800, 800], [800, 800]]


def products_ns(trace: Path) -> tuple[float, float]:
    """Return the time of all products of large matrices, forward and backward."""
    events = [e for e in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    derivatives = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].startswith("autograd::engine::evaluate")]
    forward, backward = 0.0, 0.0
    for event in events:
        if event["name"] == "aten::mm" and event["args"]["Input Dims"][:2] == SQUARE:
            if any(begin <= event["ts"] < end for begin, end in derivatives):
                backward += 1000 * event["dur"]
            else:
                forward += 1000 * event["dur"]
    return forward, backward


@pytest.mark.slow
def test_the_module_that_takes_the_time_is_named_with_its_size(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perfkit", "run", str(SCRIPT), "-n", "2", "--trace-dir", str(tmp_path)]
    command += ["--schedule", "wait=1,warmup=1,active=8", "--with-stack", "--record-shapes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (folder,) = tmp_path.glob("*/")
    (run,) = perfkit.analyze(folder, cache=False).runs
    for rank in run.ranks:
        (trace,) = folder.glob(f"rank{rank.rank}*.json.gz")
        forward_ns, backward_ns = products_ns(trace)
        assert forward_ns > 0
        assert rank.work is not None
        (tree,) = (tree for tree in rank.work.trees if tree.by == "class")
        heavy = paths_of(tree)["DistributedDataParallel", "Sequential", "Heavy"]
        assert heavy.forward_ns >= forward_ns
        assert heavy.backward_ns >= backward_ns
        assert heavy.total_ns == heavy.forward_ns + heavy.backward_ns
        # Beside the products: transposes, sums of gradients, the mean.
        assert heavy.total_ns <= 1.25 * (forward_ns + backward_ns)
        functions = paths_of(next(tree for tree in rank.work.trees if tree.by == "python"))
        (path,) = (path for path in functions if path[-1].endswith("heavy_module.py(31): forward"))
        assert functions[path].total_ns == heavy.total_ns
