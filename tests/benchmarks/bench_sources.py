"""Time of an epoch by input source, relative to memory read per sample.

    python -m tests.benchmarks.bench_sources --samples 8192 --workers 0

Samples are those of the workload `transformer` (43 KB each). `cold` is a first epoch with the file out of the page
cache, `warm` the fastest of the epochs after it, in the same process and with the same handles.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from tests.unit.workloads.conftest import make_source
from workloads.base import Workload
from workloads.data.loader import make_loader
from workloads.transformer import Transformer, TransformerConfig

LAYOUTS: dict[str, dict[str, Any]] = {
    "memory": {"source": "memory"},
    "hdf5": {"source": "hdf5"},
    "hdf5 chunk 1": {"source": "hdf5", "hdf5_chunk": 1},
    "hdf5 chunk 32": {"source": "hdf5", "hdf5_chunk": 32},
    "hdf5 chunk 1 lzf": {"source": "hdf5", "hdf5_chunk": 1, "hdf5_compression": "lzf"},
    "hdf5 chunk 32 gzip": {"source": "hdf5", "hdf5_chunk": 32, "hdf5_compression": "gzip"},
    "safetensors": {"source": "safetensors"},
}


def main() -> None:
    """Measure every layout and read mode, and print a table."""
    arguments = parse()
    torch.set_num_threads(1)
    workload = Transformer(TransformerConfig(samples=arguments.samples))
    with tempfile.TemporaryDirectory(dir=arguments.data_dir) as folder:
        rows = [
            (layout, read, *measure(workload, layout, read, folder, arguments))
            for layout in LAYOUTS
            if arguments.only in layout or layout == "memory"
            for read in ("per-sample", "batched")
        ]
    base = rows[0][3]
    size = arguments.samples * workload.data_spec(0).sample_bytes
    print(f"{'source':<20}{'read':<12}{'cold':>9}{'warm':>9}{'warm GB/s':>11}   (cold, warm: times memory per-sample)")
    for layout, read, cold, warm in rows:
        print(f"{layout:<20}{read:<12}{cold / base:>9.2f}{warm / base:>9.2f}{size / warm / 1e9:>11.2f}", flush=True)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data-dir", default=None, help="on the disk to be measured")
    parser.add_argument("--only", default="", metavar="TEXT", help="only layouts that contain TEXT, and memory")
    return parser.parse_args()


def measure(
    workload: Workload[Any], layout: str, read: str, folder: str, arguments: argparse.Namespace
) -> tuple[float, float]:
    """Return the seconds of the first epoch from disk, and of the fastest later one."""
    source, options = make_source(**LAYOUTS[layout], read=read, data_dir=folder, num_workers=arguments.workers)
    spec = workload.data_spec(0)
    path = source.prepare(workload, spec, options)
    if path is not None:
        forget(path)
    dataset: Any = source.dataset(workload, spec, path, options)
    loader = make_loader(dataset, RandomSampler(dataset), options, arguments.batch_size)
    cold, *warm = epochs(loader, 1 + arguments.repeats)
    return cold, min(warm)


def epochs(loader: DataLoader[Any], count: int) -> Iterator[float]:
    """Yield the seconds of `count` epochs."""
    for _ in range(count):
        started = time.perf_counter()
        for _ in loader:
            pass
        yield time.perf_counter() - started


def forget(path: Path) -> None:
    """Drop a file from the page cache; nothing may have it mapped."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
