"""`perfkit collectives`: measures collectives as torch issues them."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from perfkit.base.formatting import install_extra
from perfkit.base.process import exit_on_sigint
from perfkit.cli.benchmarks.reporting import (
    Comparing,
    Kind,
    Reporting,
    rank_option,
    report_options,
    run_benchmark,
    start_ranks,
)
from perfkit.cli.config_options import Layer, command, options, resolve
from perfkit.errors import LaunchEnvironmentError
from perfkit.options.run import choices_by_accelerator
from perfkit.records.benchmark import CollectiveBenchmark
from perfkit.records.common import Finding
from perfkit.storage.report_file import load_collectives
from perfkit.tools.collectives.config import CollectivesConfig

if TYPE_CHECKING:
    from perfkit.cli import Call

_HELP: Final = """Measure collectives as torch issues them: time and bandwidth by size, and whether results are correct.

mpiexec, torchrun or srun start the ranks; `-n N` starts N on this host.

\b
perfkit collectives -n 2 --operators all_reduce
mpiexec -n 4 perfkit collectives --mesh dp=2,tp=2 -o network.json
perfkit collectives -n 4 --pairs
perfkit collectives -n 2 --compare a.json --fail-on 'all_reduce.busbw < -10%'

\b
Exit codes: 1 wrong results, 3 a condition holds, 4 one cannot be evaluated.
"""
_CONDITIONS: Final = "'all_reduce.busbw < -10%' (the largest message) or 'all_reduce.latency > 500us' (the smallest)"


def _compare(
    before: CollectiveBenchmark, record: CollectiveBenchmark, wanted: Comparing
) -> tuple[Any, Iterable[Finding]]:
    from perfkit.tools.collectives.comparison import compare_benchmarks, differences

    compared = compare_benchmarks(wanted.path or "", before, record, wanted.gates, wanted.assumed_noise)
    return compared, differences(before, record)


_KIND: Final = Kind(CollectiveBenchmark, load_collectives, _compare)


def _start(call: "Call", given: dict[str, Any]) -> None:
    run_benchmark(lambda: _run(call, given))


def _run(call: "Call", given: dict[str, Any]) -> None:
    ranks = given.pop("ranks", None)
    reporting = Reporting(_KIND, given)
    (config,) = resolve([CollectivesConfig], [Layer("", given)])
    assert isinstance(config, CollectivesConfig)  # noqa: S101  resolve keeps the order
    if find_spec("torch") is None:
        raise LaunchEnvironmentError(
            f"`perfkit collectives` needs torch, which is not installed: {install_extra('run')}"
        )
    start_ranks(call.arguments, ranks, config.check_world, lambda: _run_rank(config, reporting, call.debug))


def _run_rank(config: CollectivesConfig, reporting: Reporting[CollectiveBenchmark], debug: bool) -> None:
    with exit_on_sigint():  # torch is imported
        from perfkit.tools.collectives.measure.worker import run_rank

    record = run_rank(config, reporting.finish, debug)
    if record is not None:
        reporting.show(record, record.findings, record.comparison.gates if record.comparison else ())


_OWN: Final = [
    rank_option(2, "the ranks of mpiexec, torchrun or srun"),
    *report_options(CollectiveBenchmark, _CONDITIONS),
]

app = command(_start, [*_OWN, *options(CollectivesConfig, "Benchmark", choices_by_accelerator())], _HELP)
