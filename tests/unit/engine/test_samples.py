"""What samples say of the time between them."""

import numpy as np
import pytest
from msgspec.structs import replace

from perfkit.engine.samples import HostSamples
from perfkit.records.samples import CodeLocation, RecordedSamples, SampledPlace, add_code
from perfkit.trace.intervals import Union
from tests.support.traces.samples import Stack, recorded
from tests.support.traces.trace_builder import BASE_NS

MAIN: Stack = [("train.py(1): <module>", 40, "step")]
JITTER: Stack = [("train.py(7): colour_jitter", 9, "min"), *MAIN]
IN_TORCH: Stack = [("torch/functional.py(3): stack", 5), ("train.py(20): Images.__getitem__", 22), *MAIN]


def spans(*pairs: tuple[int, int]) -> Union:
    start, end = np.array(pairs, np.int64).T * 1000 + BASE_NS
    return Union(start, end)


def functions(samples: RecordedSamples, *pairs: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return line and microseconds of each function."""
    host = HostSamples(samples)
    found = host.functions_of(*host.overlaps(spans(*pairs))[1:])
    return {one.function: (one.line, one.ns // 1000) for one in found}


def test_neighbours_share_the_time_between_them() -> None:
    samples = recorded([(1000, MAIN), (2000, JITTER), (3000, JITTER)])
    assert functions(samples, (0, 3000)) == {"colour_jitter": (9, 1500), "<module>": (40, 1500)}
    assert functions(samples, (1600, 1700)) == {"colour_jitter": (9, 100)}


def test_samples_taken_in_spans_divide_their_time() -> None:
    samples = HostSamples(recorded([(1000, MAIN), (2000, JITTER), (3000, JITTER), (4000, MAIN)]))
    sample, length = samples.taken_in(spans((1900, 2100), (3950, 4150)))
    assert (sample.tolist(), int(length.sum())) == ([1, 3], 400_000)
    assert samples.taken_in(spans((1200, 1800)))[0].size == 0


def test_a_c_function_that_delays_a_sample_has_the_time_before_it() -> None:
    samples = recorded([(1000, MAIN), (51_000, JITTER), (52_000, MAIN)])
    assert functions(samples, (0, 52_000))["colour_jitter"] == (9, 50_000)


def test_the_program_s_function_that_called_a_library_is_named() -> None:
    assert functions(recorded([(1000, IN_TORCH), (2000, IN_TORCH)]), (600, 2000)) == {"Images.__getitem__": (22, 1400)}


def test_the_line_is_that_of_most_samples() -> None:
    other: Stack = [("train.py(7): colour_jitter", 11, "clip"), *MAIN]
    samples = recorded([(1000, JITTER), (2000, other), (3000, other), (4000, other)])
    host = HostSamples(samples)
    (found,) = host.functions_of(*host.overlaps(spans((0, 4000)))[1:])
    assert (found.line, found.call) == (11, "clip")


def test_perfkit_s_hooks_are_left_out() -> None:
    hooked: Stack = [("perfkit/record/script/hooks/torch_hooks.py(9): hooked", 12), *MAIN]
    samples = HostSamples(recorded([(1000, hooked)]))
    assert samples.names[samples.innermost[0]] == "train.py(1): <module>"


def test_a_forked_worker_has_no_functions_of_the_process_that_made_it() -> None:
    stack: Stack = [("torch/utils/data/_utils/collate.py(3): default_collate", 5)]
    loop = ("torch/utils/data/_utils/worker.py(2): _worker_loop", 3)
    assert functions(recorded([(1000, [*stack, loop, *MAIN])], worker=0), (0, 1000)) == {}


@pytest.mark.parametrize(
    ("ran", "waits", "expected"), [(900, 1, "runs"), (100, 1, "waits"), (100, 0, "starves"), (0, 3, "waits")]
)
def test_what_a_thread_that_does_not_run_waits_for(ran: int, waits: int, expected: str) -> None:
    samples = HostSamples(recorded([(1000, MAIN, ran, waits)]))
    found = "waits" if samples.waits[0] else "starves" if samples.starves[0] else "runs"
    assert found == expected


def test_damaged_samples_name_nothing() -> None:
    good = recorded([(1000, JITTER), (2000, JITTER)])
    damaged = [
        replace(good, places=[SampledPlace(99, 1)] * len(good.places)),
        replace(good, places=[SampledPlace(-1, 1)] * len(good.places)),
        replace(good, stacks=[[99], [-1]]),
        replace(good, stacks=[]),
        replace(good, samples=[]),
    ]
    for one in damaged:
        assert functions(one, (0, 2000)) == {}


def test_locations_of_one_function_are_added_up() -> None:
    one, other = (CodeLocation(function="f", file="a.py", line=line, ns=ns) for line, ns in ((3, 10), (4, 20)))
    most = CodeLocation(function="g", file="a.py", line=9, ns=25)
    assert add_code([one, None, most, other]) == replace(other, ns=30)
    assert add_code([None]) is None
    assert (other.text, replace(other, function="<module>").text) == ("f, a.py:4", "a.py:4")
