import msgspec

from perfkit.subjects.scaling.step_time import sample, to_record
from tests.support.reports.scaling_builders import make_scaled


def test_ranks_that_share_samples_count_once() -> None:
    run = make_scaled(4, 10.0)
    assert run.throughput is not None
    shared = msgspec.structs.replace(
        run,
        throughput=msgspec.structs.replace(run.throughput, samples_per_s=run.throughput.samples_per_s / 2),
    )
    own, halved = (to_record(sample([one], "plain", 0)).samples_per_s for one in (run, shared))
    assert own is not None
    assert halved is not None
    assert halved.value == own.value / 2
