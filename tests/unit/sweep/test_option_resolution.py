"""The options of the runs, checked once, by the program that will run them."""

import re

import pytest

from perfkit.cli.resolve_options import answer
from perfkit.errors import UsageError
from perfkit.sweep.option_resolution import ResolveRequest, resolve_options

PLACE = ("--trace-dir", "t")


def test_options_come_to_what_a_run_writes_into_its_manifest() -> None:
    tiny = ["transformer", "--preset", "tiny", "--source=hdf5", "--no-overlap", *PLACE]
    said = answer(ResolveRequest(commands=[tiny], ranks=1))
    (config,) = said.configs
    expected = {"batch_size": 8, "d_model": 32, "source": "hdf5", "overlap": False, "data_dir": "t/.data"}
    assert {name: config[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "left"),
    [((), True), (("--threads", "1"), False)],
)
def test_it_is_known_who_decides_on_threads(options: tuple[str, ...], left: bool) -> None:
    assert answer(ResolveRequest(commands=[["gpt", "--device", "cpu", *options]], ranks=1)).threads_by_ranks is left


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["nothing"], "unknown workload 'nothing': choose from transformer, gpt"),
        (["gpt", "--stpes", "3"], "No such option: --stpes"),
        (["gpt", "--steps=3"], "3 steps are too few for the schedule"),
        (["gpt", "--source=tape"], "'tape' is not one of"),
        (["gpt", "--hdf5-chunk=4"], "hdf5_chunk is for source hdf5, not memory"),
        (["gpt", "loose"], "unexpected extra argument(s) (loose)"),
        (["gpt", "--inject=rank=1,phase=backward,delay=5ms"], "this run has ranks 0 to 0"),
    ],
)
def test_an_option_that_cannot_be_is_said_as_perfkit_run_says_it(command: list[str], error: str) -> None:
    said = answer(ResolveRequest(commands=[["gpt"], command], ranks=1))
    assert error in str(said.error)
    assert said.usage


def test_a_process_of_its_own_answers() -> None:
    with pytest.raises(UsageError, match=re.escape("unknown workload 'nothing'")):
        resolve_options([["nothing"]], 1)
