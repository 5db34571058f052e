"""How the straggler bench judges: a rank that had to wait for a core is really late."""

from pathlib import Path

import pytest

from perfkit.records.cross_rank import Straggler
from tests.benchmarks.bench_stragglers import kept_from_core
from tests.support.processes.delayed_jobs import write_core_waits

MS = 1_000_000


@pytest.mark.parametrize(("waits_ms", "kept"), [((12, 30, 8), True), ((3, 90, 4), False)])
def test_a_rank_is_kept_from_its_core_if_waiting_for_it_explains_half_of_the_lag(
    tmp_path: Path, waits_ms: tuple[int, ...], kept: bool
) -> None:
    late = Straggler(
        rank=1, category="compute", lag_ns=20 * MS, share=0.1, gain_ns=0, steps_late=3, steps_last=3, steps=3
    )
    assert not kept_from_core(tmp_path, [late], 3), "nothing was recorded"
    for rank, waits in enumerate([(0, 0, 0), waits_ms, (0, 0, 0)]):
        write_core_waits(tmp_path, rank, [wait * MS for wait in waits])
    assert kept_from_core(tmp_path, [late], 3) == kept
