"""`perfkit collectives`: measures collectives as torch issues them."""

from typing import TYPE_CHECKING, Any, Final

from perfkit.cli.benchmark import Kind, report_options, require_packages, run_benchmark
from perfkit.cli.config_options import Layer, command, options, rank_option, resolve
from perfkit.options.run import choices_by_accelerator
from perfkit.records.benchmark import CollectiveBenchmark
from perfkit.storage.report_file import load_collectives
from perfkit.tools.collectives.config import CollectivesConfig

if TYPE_CHECKING:
    from perfkit.cli import Call

_HELP: Final = """Measure collectives as torch issues them: time and bandwidth by size, and whether results are correct.

mpiexec, torchrun or srun start the ranks; `-n N` starts N on this host.

Exit codes: 1 wrong results, 3 a condition holds, 4 one cannot be evaluated.

\b
perfkit collectives -n 2 --operators all_reduce
mpiexec -n 4 perfkit collectives --mesh dp=2,tp=2 -o network.json
perfkit collectives -n 4 --pairs
perfkit collectives -n 2 --compare a.json --fail-on 'all_reduce.busbw < -10%'
"""
_KIND: Final = Kind(
    "collectives",
    CollectiveBenchmark,
    load_collectives,
    "'all_reduce.busbw < -10%' (the largest message) or 'all_reduce.latency > 500us' (the smallest)",
)


def _prepare(given: dict[str, Any]) -> tuple[Any, ...]:
    (config,) = resolve([CollectivesConfig], [Layer("", given)])
    require_packages("perfkit collectives", [("torch", "run")])
    return (config,)


def _start(call: "Call", given: dict[str, Any]) -> None:
    run_benchmark(_KIND, call, given, _prepare)


app = command(
    _start,
    [
        rank_option("the ranks of mpiexec, torchrun or srun", least=2),
        *report_options(_KIND),
        *options(CollectivesConfig, "Benchmark", choices_by_accelerator()),
    ],
    _HELP,
)
