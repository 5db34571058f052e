"""Damage the files that perfkit reads at random: each reader returns, or raises one line of perfkit's own errors.

    nice -n 19 python -m tests.fuzz_files --minutes 15 --seed 1

Traces have stronger checks (`tests.fuzz_reader`), which the target `trace` runs. An input that fails is printed: make
it small, and keep it in `tests/data/hostile` as TARGET.NAME.
"""

import argparse
import functools
import pickle
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from perfkit.engine.hangs.flight_dump import read_flight_dump
from perfkit.errors import PerfkitError
from perfkit.pipeline.summarize import Options, SummarizeResult, Task, summarize_file
from perfkit.storage.device_table_file import load_device_table
from perfkit.storage.hang_log import read_hangs
from perfkit.storage.kernel_rules_file import load_kernel_rules
from perfkit.storage.memory_snapshot_file import read_snapshot
from perfkit.storage.report_file import load_collectives, load_input, load_report
from perfkit.storage.run_folder import read_manifest
from perfkit.storage.step_log.reader import StepLogReader
from perfkit.storage.step_log.writer import StepLogWriter
from perfkit.subjects.table import answer_subjects
from perfkit.trace.comm_logs.facts import NcclLogReader
from perfkit.trace.comm_logs.one_ccl import OneCclReader
from perfkit.trace.reader import read_trace
from perfkit.trace.symbols.demangle import readable_names
from tests import fuzz_reader
from tests.support.hangs.flight_dumps import dump, entry
from tests.support.reports import collective_builders, input_builders
from tests.support.reports.report_builders import make_report
from tests.support.traces.memory.memory_snapshots import made_training

ROOT: Final = Path(__file__).parents[1]
HOSTILE: Final = ROOT / "tests" / "data" / "hostile"
SLOWEST_S: Final = 10
"""No file of these sizes takes a tenth of it."""

_NCCL: Final = b"""node1:71:71 [0] NCCL INFO NCCL version 2.28.9+cuda12.4
node1:71:99 [0] NCCL INFO ncclCommInitRank comm 0x5581 rank 0 nranks 4 cudaDev 0 busId 1000 commId 0x9f - Init START
node1:71:99 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
node1:71:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read
node1:71:99 [0] NCCL INFO comm 0x5581 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0
node1:71:99 [0] misc/socket.cc:483 NCCL WARN socketProgress: Connection closed by remote peer node2<48106>
"""
_ONE_CCL: Final = b"""2025:06:01-10:11:12:( 4242) |CCL_INFO| value of CCL_ATL_TRANSPORT changed to be mpi (default:mpi)
2025:06:01-10:11:12:( 4242) |CCL_WARN| no membind support for NUMA node 0
2025:06:01-10:11:13:( 4242) |CCL_ERROR| atl_mpi.cpp:12 fail: exception
"""
_RULES: Final = b'[[rule]]\npattern = "my_gemm.*"\nkind = "compute"\nclass = "gemm"\nsource = "ours"\n'
_DEVICES: Final = b'[[device]]\nname = "X"\nbandwidth_gb_per_s = 10.5\ntflops = {float32 = 1.0}\nsource = "y"\n'
_NAMES: Final = b"""_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_
_Z10dot_kernelIfLi128ELi0E18cublasDotParamsI16cublasGemvTensorIKfES0_IfEEEvT2_
"""


def _flight(path: Path) -> None:
    msgspec.json.encode(read_flight_dump(path.read_bytes(), 0))


def _memory(path: Path) -> None:
    for device in read_snapshot(path):
        msgspec.json.encode([list(device.stacks), device.history.action])


def _in_folder(read: Callable[[Path], object], name: str, path: Path) -> None:
    shutil.copyfile(path, path.with_name(name))
    msgspec.json.encode(read(path.parent))


def _shown(load: Callable[[Path], object], path: Path) -> None:
    repr(load(path)).encode()


def _nccl(path: Path) -> None:
    NcclLogReader().read(path)


def _one_ccl(path: Path) -> None:
    reader = OneCclReader()
    for line in path.read_bytes().splitlines():
        reader.add(line, "log")


_OPTIONS: Final = Options(subjects=answer_subjects())


def _summary(path: Path) -> None:
    task = Task(path=path.name, folder=str(path.parent), bytes=path.stat().st_size, options=_OPTIONS, cached=False)
    found: SummarizeResult = summarize_file(task)
    assert (found.summary is None) != (found.lost is None)


def _steps(path: Path) -> None:
    reader = StepLogReader(path)
    while len(found := reader.read_new(64).records):
        found.tobytes()


class Target(NamedTuple):
    """A kind of file."""

    seed: Callable[[], bytes]
    read: Callable[[Path], object]


def _step_log() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        writer = StepLogWriter(Path(folder), 0, 1, "cpu")
        writer.close()
        return writer.path.read_bytes()


def _flight_dump() -> dict[str, object]:
    return dump(entry(1, state="completed"), entry(2), entry(3, p2p=True))


TARGETS: Final[dict[str, Target]] = {
    "trace": Target(lambda: fuzz_reader.SEED_TEXTS[0], read_trace),
    "summary": Target(lambda: fuzz_reader.SEED_TEXTS[0], _summary),
    "manifest": Target(
        lambda: (ROOT / "traces/sample-hdf5/run.json").read_bytes(),
        functools.partial(_in_folder, read_manifest, "run.json"),
    ),
    "hangs": Target(
        lambda: b'{"schema_version": 1, "hangs": []}', functools.partial(_in_folder, read_hangs, "hangs.json")
    ),
    "steps": Target(_step_log, _steps),
    "report": Target(lambda: msgspec.json.encode(make_report()), functools.partial(_shown, load_report)),
    "collectives": Target(
        lambda: msgspec.json.encode(collective_builders.benchmark({8: [1e3, 2e3, 3e3]})),
        functools.partial(_shown, load_collectives),
    ),
    "input": Target(
        lambda: msgspec.json.encode(
            input_builders.benchmark([input_builders.measurement(k, [1.0, 2.0]) for k in range(2)])
        ),
        functools.partial(_shown, load_input),
    ),
    "memory": Target(lambda: pickle.dumps(made_training().snapshot()), _memory),
    "flight": Target(lambda: pickle.dumps(_flight_dump(), 2), _flight),
    "flight-json": Target(lambda: msgspec.json.encode(_flight_dump()), _flight),
    "nccl": Target(lambda: _NCCL, _nccl),
    "oneccl": Target(lambda: _ONE_CCL, _one_ccl),
    "rules": Target(lambda: _RULES, load_kernel_rules),
    "devices": Target(lambda: _DEVICES, load_device_table),
    "names": Target(lambda: _NAMES, lambda path: readable_names(path.read_text("utf-8", "replace").splitlines())),
}


def check(target: str, data: bytes, folder: Path) -> bool:
    """Return whether a reader accepts an input.

    Raises:
        AssertionError: it fails in another way than by one line, or takes too long.
    """
    path = folder / "input.json"
    path.write_bytes(data)
    started = time.process_time()
    try:
        TARGETS[target].read(path)
        accepted = True
    except PerfkitError as error:
        accepted = False
        if "\n" in str(error):
            raise AssertionError(target, data, str(error)) from error
    except Exception as error:
        raise AssertionError(target, data, f"{type(error).__name__}: {error}") from error
    assert time.process_time() - started < SLOWEST_S, (target, data)
    return accepted


def damaged(target: str, chance: random.Random) -> bytes:
    """Return the target's file with one to fifteen random changes."""
    data = bytearray(_seed(target))
    for _ in range(chance.choice((1, 1, 2, 5, 15))):
        fuzz_reader.change(chance, data)
    return bytes(data)


@functools.cache
def _seed(target: str) -> bytes:
    return TARGETS[target].seed()


def main() -> None:
    """Run every target in turns for as long as asked, and print the rate and what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)  # noqa: S311 - nothing is secret here
    started, accepted, done = time.monotonic(), dict.fromkeys(TARGETS, 0), 0
    failed: dict[tuple[str, str], bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - started < 60 * arguments.minutes:
            for target in TARGETS:
                try:
                    accepted[target] += check(target, damaged(target, chance), Path(folder))
                except AssertionError as error:
                    name, data, what = (*error.args[0], "too slow")[:3] if len(error.args) == 1 else error.args
                    failed.setdefault((name, what[:60]), data)
                done += 1
    rate = done / (time.monotonic() - started)
    print(f"{done:,} inputs, {rate:.0f} per second; of {done // len(TARGETS):,} each accepted: {accepted}")
    for (name, what), data in failed.items():
        print(f"FAILED {name}: {what}: {data!r}")


if __name__ == "__main__":
    main()
