"""Trains gpt with every strategy on gloo ranks of this host, and writes a page with a table: `make strategies`.

python -m tests.benchmarks.bench_strategies --ranks 2 4 8 --write docs/strategies.md
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from perfkit.base.system_limits import count_cores
from perfkit.records.manifest import RunManifest

GLOBAL_BATCH: Final = 16
OPTIONS: Final = (
    "--layers 4 --width 32 --heads 4 --block 16 --vocab-size 65 --steps 10 --learning-rate 0.01 --warmup-steps 0 "
    "--threads 1"
)
"""Small, and learning fast from the first step on: a wrong gradient shows within a few steps."""
EXPERTS: Final = ("--experts", "4")
TOLERANCE: Final = 1e-4

CASES: Final[dict[int, tuple[tuple[str, str, tuple[str, ...]], ...]]] = {
    2: (
        ("DDP", "dp=2", ()),
        ("ZeRO-1", "dp=2", ("--dp", "zero1")),
        ("ZeRO-2", "dp=2", ("--dp", "zero2")),
        ("ZeRO-3", "dp=2", ("--dp", "zero3")),
        ("tensor parallel", "tp=2", ()),
        ("tensor and sequence parallel, split loss", "tp=2", ("--sequence-parallel", "--loss-parallel")),
        ("context parallel", "cp=2", ()),
        ("naive model parallel", "pp=2", ("--pp-schedule", "none")),
        ("pipeline, GPipe", "pp=2", ("--pp-schedule", "gpipe")),
        ("pipeline, 1F1B", "pp=2", ("--pp-schedule", "1f1b")),
        ("pipeline, interleaved", "pp=2", ("--pp-schedule", "interleaved")),
        ("pipeline, zero bubble", "pp=2", ("--pp-schedule", "zero-bubble")),
        ("pipeline, ZBV", "pp=2", ("--pp-schedule", "zbv")),
        ("experts, DDP", "dp=2", EXPERTS),
        ("experts, expert parallel", "ep=2", EXPERTS),
    ),
    4: (
        ("DDP", "dp=4", ()),
        ("ZeRO-1", "dp=4", ("--dp", "zero1")),
        ("ZeRO-2", "dp=4", ("--dp", "zero2")),
        ("ZeRO-3", "dp=4", ("--dp", "zero3")),
        ("hybrid sharded", "replicate=2,shard=2", ("--dp", "hsdp")),
        ("DDP, tensor parallel", "dp=2,tp=2", ()),
        ("ZeRO-3, tensor parallel", "dp=2,tp=2", ("--dp", "zero3")),
        ("DDP, context parallel", "dp=2,cp=2", ()),
        ("DDP, pipeline", "pp=2,dp=2", ()),
        ("ZeRO-3, pipeline", "pp=2,dp=2", ("--dp", "zero3")),
        ("pipeline, tensor parallel", "pp=2,tp=2", ()),
        ("experts, DDP, expert parallel", "dp=2,ep=2", EXPERTS),
    ),
    8: (
        ("DDP", "dp=8", ()),
        ("ZeRO-1", "dp=8", ("--dp", "zero1")),
        ("ZeRO-2", "dp=8", ("--dp", "zero2")),
        ("ZeRO-3", "dp=8", ("--dp", "zero3")),
        ("hybrid sharded", "replicate=2,shard=4", ("--dp", "hsdp")),
        ("DDP, tensor parallel", "dp=2,tp=4", ()),
        ("DDP, pipeline", "pp=4,dp=2", ()),
        ("ZeRO-2, pipeline, interleaved", "pp=2,dp=4", ("--dp", "zero2", "--pp-schedule", "interleaved")),
        ("ZeRO-2, pipeline, zero bubble", "pp=2,dp=4", ("--dp", "zero2", "--pp-schedule", "zero-bubble")),
        ("ZeRO-2, pipeline, ZBV", "pp=2,dp=4", ("--dp", "zero2", "--pp-schedule", "zbv")),
        ("pipeline, tensor parallel", "pp=4,tp=2", ()),
        ("DDP, pipeline, tensor parallel", "pp=2,dp=2,tp=2", ()),
        ("ZeRO-3, pipeline, tensor parallel", "pp=2,dp=2,tp=2", ("--dp", "zero3")),
        ("DDP, context parallel", "dp=2,cp=4", ()),
        ("experts, DDP, expert parallel", "dp=2,ep=4", EXPERTS),
    ),
}
"""Strategy, mesh and options, by number of ranks."""

SHARED: Final = ("pp", "tp", "cp")
"""Dimensions whose ranks share a batch."""


def train(folder: Path, ranks: int, mesh: str, options: tuple[str, ...]) -> RunManifest:
    """Run `perfkit run gpt`, without recording, and return its manifest.

    Raises:
        SystemExit: The run failed; its message is shown.
    """
    sizes = dict(part.split("=") for part in mesh.split(","))
    replicas = ranks
    for name in SHARED:
        replicas //= int(sizes.get(name, 1))
    command = [
        sys.executable,
        "-m",
        "perfkit",
        "run",
        "gpt",
        "-n",
        str(ranks),
        *OPTIONS.split(),
        *options,
        "--mesh",
        mesh,
    ]
    command += ["--no-profile", "--batch-size", str(GLOBAL_BATCH // replicas), "--trace-dir", str(folder)]
    name = f"run{len(list(folder.iterdir()))}"
    done = subprocess.run([*command, "--name", name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return msgspec.json.decode((folder / name / "run.json").read_bytes(), type=RunManifest)


def mean_losses(manifest: RunManifest) -> list[float]:
    """Return the loss of each step, the mean over the ranks that know it."""
    steps = zip(*(rank.loss for rank in manifest.ranks), strict=True)
    known = [[loss for loss in step if loss is not None] for step in steps]
    return [sum(step) / len(step) for step in known]


def memory_kib(manifest: RunManifest) -> float:
    """Return what parameters, gradients and optimizer state take on the rank that holds most of them, in KiB."""
    held = [rank.memory for rank in manifest.ranks if rank.memory is not None]
    return max(one.parameters_bytes + one.gradients_bytes + one.optimizer_bytes for one in held) / 2**10


def rows(folder: Path, worlds: list[int]) -> Iterator[tuple[str, ...]]:
    """Train each case, and yield its row of the table."""
    references: dict[tuple[str, ...], list[float]] = {}
    for experts in ((), EXPERTS):
        alone = train(folder, 1, "dp=1", experts)
        references[experts] = mean_losses(alone)
        yield _row(alone, 1, "one process, experts" if experts else "one process", "", (*experts,), references)
    for world in worlds:
        for strategy, mesh, options in CASES[world]:
            yield _row(train(folder, world, mesh, options), world, strategy, mesh, options, references)


def _row(
    manifest: RunManifest,
    ranks: int,
    strategy: str,
    mesh: str,
    options: tuple[str, ...],
    references: dict[tuple[str, ...], list[float]],
) -> tuple[str, ...]:
    reference = references[EXPERTS if "--experts" in options else ()]
    differences = [abs(a - b) / b for a, b in zip(mean_losses(manifest), reference, strict=True)]
    assert manifest.throughput is not None
    equal = f"yes ({max(differences):.0e})" if max(differences) <= TOLERANCE else f"**no ({max(differences):.0e})**"
    step = f"{manifest.throughput.step_ns / 1e6:.0f}"
    given = f"`{' '.join([*options, *(['--mesh', mesh] if mesh else [])])}`" if mesh or options else ""
    return str(ranks), strategy, given, step, f"{memory_kib(manifest):.0f}", equal if mesh else "reference"


HEADER: Final = ("ranks", "strategy", "options", "step, ms", "P + G + O, KiB per rank", "losses of one process")


TEXT: Final = f"""# Strategies

Every way but DeepSpeed to share the training of
`perfkit run gpt {OPTIONS}`
between ranks, as `make strategies` runs them on one host and writes this page. All runs train on the same
{GLOBAL_BATCH} samples per step, from the same seed. The last column is whether the loss of each step equals that of one
process, to a relative {TOLERANCE:.0e}, and the largest difference.

P + G + O are the bytes of parameters, gradients and optimizer state on the rank that holds most of them
([definition](metrics.md#11-memory-of-a-rank)). The step is the mean; the ranks share the cores of the host
({{cores}} here, gloo, no accelerator), so that times do not show which strategy is the fastest elsewhere. With experts,
rounding may send a token whose scores are almost equal to another expert: longer runs of larger models differ by more.
"""


def page(found: list[tuple[str, ...]]) -> str:
    """Return the page in Markdown."""
    lines = [HEADER, tuple("---" for _ in HEADER), *found]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{TEXT.format(cores=count_cores())}\n{table}\n"


def progress(row: tuple[str, ...]) -> str:
    """Return a row of the table as a line for the terminal."""
    ranks, strategy, options, step, kib, losses = row
    given = f" ({options.strip('`')})" if options else ""
    return f"ranks {ranks}: {strategy}{given}: step {step} ms, {kib} KiB per rank, losses of one process: {losses}"


def main() -> int:
    """Train all cases; return 1 if the losses of one differ from those of one process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], choices=sorted(CASES))
    parser.add_argument("--write", type=Path, help="write the page into this file")
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder), given.ranks):
            found.append(row)
            sys.stderr.write(progress(row) + "\n")
    text = page(found)
    print(text)
    if given.write is not None:
        given.write.parent.mkdir(parents=True, exist_ok=True)
        given.write.write_text(text, encoding="utf-8")
    return int(any("no (" in row[-1] for row in found))


if __name__ == "__main__":
    sys.exit(main())
