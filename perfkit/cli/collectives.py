"""`perfkit collectives`: measures collectives as torch issues them."""

from functools import partial
from typing import Any, Final

from perfkit.cli.benchmark import Kind, report_options, run_benchmark
from perfkit.cli.config_options import command, options, rank_option, record
from perfkit.cli.typer_app import require_packages
from perfkit.options.run import choices_by_accelerator
from perfkit.records.benchmark import CollectiveBenchmark
from perfkit.storage.report_file import load_collectives
from perfkit.tools.collectives.config import CollectivesConfig

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
    config = record(CollectivesConfig, given)
    require_packages("perfkit collectives", [("torch", "run")])
    return (config,)


app = command(
    partial(run_benchmark, _KIND, prepare=_prepare),
    [
        rank_option("the ranks of mpiexec, torchrun or srun", least=2),
        *report_options(_KIND),
        *options(CollectivesConfig, "Benchmark", choices_by_accelerator()),
    ],
    _HELP,
)
