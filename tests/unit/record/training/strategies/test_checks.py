import re

import pytest

from perfkit.cli.recording.run_options import parse_job
from perfkit.errors import UsageError
from perfkit.record.training.strategies import STRATEGIES
from perfkit_workloads import WORKLOADS

HSDP = ("--dp", "hsdp", "--mesh", "replicate=2,shard=2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("transformer", *HSDP), "--dp hsdp: the workload transformer supports ddp, zero1, zero2, zero3"),
        (
            ("gpt", "--dp", "hsdp"),
            "--dp hsdp needs the sizes of its dimensions, for example --mesh replicate=2,shard=2",
        ),
        (("transformer", "--mesh", "tp=2"), "the workload transformer does not support the dimension tp"),
        (("gpt", "--mesh", "tp=3"), "--mesh tp=3: --heads 4 is not divisible by tp=3"),
        (("gpt", "--mesh", "tp=2", "--sequence-parallel", "--block", "63"), "--block 63 is not divisible by tp=2"),
        (("gpt", "--pp-schedule", "gpipe"), "--pp-schedule needs a pipeline, for example --mesh pp=2"),
        (("gpt", "--micro-batches", "2"), "--micro-batches needs a pipeline"),
        (("gpt", "--mesh", "pp=1"), "a pipeline needs at least two ranks: remove pp=1"),
        (("gpt", "--mesh", "pp=4"), "--layers 2 are fewer than the 4 stages of the pipeline"),
        (("gpt", "--mesh", "pp=2", "--pp-schedule", "zbv"), "--layers 2 are fewer than the 4 stages"),
        (
            ("gpt", "--mesh", "pp=2", "--batch-size", "6"),
            "--batch-size 6 is not divisible by --micro-batches 4, the default for a pipeline of 2 ranks",
        ),
        (("gpt", "--mesh", "pp=2", "--micro-batches", "1"), "--micro-batches 1 is not a multiple of the 2 ranks"),
        (
            ("gpt", "--mesh", "pp=2", "--pp-schedule", "none", "--micro-batches", "2"),
            "--pp-schedule none does not divide batches: remove --micro-batches 2",
        ),
        (("gpt", "--mesh", "pp=2", "--accumulate", "2"), "--accumulate (use --micro-batches) does not work with pp"),
        (("gpt", "--mesh", "pp=2", "--precision", "bfloat16"), "--precision bfloat16 does not work with pp"),
        (("gpt", "--mesh", "pp=2", "--compile"), "--compile does not work with pp"),
        (("gpt", "--mesh", "pp=2", "--static-graph"), "--static-graph does not work with pp"),
        (("gpt", "--mesh", "pp=2", "--find-unused"), "--find-unused does not work with pp"),
        (("gpt", "--mesh", "pp=2", "--no-overlap"), "--no-overlap does not work with pp"),
        (("gpt", "--dp", "hsdp", "--mesh", "pp=2,shard=2"), "--dp hsdp does not work with pp"),
        *(
            (("gpt", "--mesh", "pp=2,dp=2", "--layers", "4", "--pp-schedule", name), f"{name} does not work with DDP")
            for name in ("gpipe", "interleaved", "zero-bubble", "zbv")
        ),
        (("gpt", "--mesh", "ep=2"), "--mesh ep=2: ep divides the experts of a mixture of experts: add --experts"),
        (("gpt", "--mesh", "ep=2", "--experts", "3"), "--experts 3 is not divisible by ep=2"),
        (("transformer", "--mesh", "ep=2"), "the workload transformer does not support the dimension ep"),
        *(
            (("gpt", "--mesh", f"ep=2,{name}=2", "--experts", "4"), f"ep works with dp only: remove {name}")
            for name in ("pp", "tp")
        ),
        *(
            (("gpt", "--mesh", "ep=2", "--experts", "4", *options), f"{' '.join(options)} does not work with ep")
            for options in (("--dp", "zero1"), ("--compile",), ("--no-overlap",), ("--precision", "float16"))
        ),
        (("gpt", "--mesh", "tp=2", "--experts", "4"), "--experts 4 does not work with the dimension tp"),
        (("gpt", "--mesh", "pp=2", "--experts", "4"), "--experts 4 does not work with the dimension pp"),
        (("gpt", "--dp", "zero1", "--prefetch-layers", "1"), "--prefetch-layers has no effect with --dp zero1, which"),
        (("gpt", "--loss-parallel"), "--loss-parallel needs tensor parallelism"),
        (("gpt", "--mesh", "tp=2,pp=2", "--loss-parallel"), "--loss-parallel does not work with pp"),
        (("gpt", "--mesh", "cp=2", "--block", "62"), "--block 62 is not divisible by 4: each rank of cp has two parts"),
        (("gpt", "--mesh", "cp=2", "--dropout", "0.1"), "ring attention, which cp uses, has no dropout"),
        (("transformer", "--mesh", "cp=2"), "the workload transformer does not support the dimension cp"),
        *(
            (("gpt", "--mesh", f"cp=2,{name}=2", *more), f"cp works with dp only: remove {name}")
            for name, more in (("pp", ()), ("tp", ()))
        ),
        (("gpt", "--mesh", "cp=2,ep=2", "--experts", "4"), "ep works with dp only: remove cp"),
        (("gpt", "--mesh", "cp=2", "--dp", "zero2"), "--dp zero2 does not work with cp"),
        (("gpt", "--mesh", "cp=2", "--compile"), "--compile does not work with cp"),
        (("gpt", "--experts", "2", "--top-k", "3"), "top_k 3 is more than the 2 experts"),
        (("gpt", "--sequence-parallel"), "--sequence-parallel needs tensor parallelism"),
        (("gpt", "--mesh", "tp=2", "--compile"), "--compile does not work with tp"),
        (("gpt", "--mesh", "tp=2", "--precision", "float16"), "--precision float16 does not work with tp"),
        (("gpt", "--dp", "hsdp", "--mesh", "dp=2"), "dimension dp is for the other strategies"),
        (("gpt", "--mesh", "shard=2"), "dimension shard is for --dp hsdp; --dp ddp has dp"),
        (("gpt", "--dp", "zero2", "--bucket-cap-mb", "1"), "--bucket-cap-mb is an option of DDP"),
        (("gpt", "--dp", "zero3", "--static-graph"), "--static-graph is an option of DDP"),
        (("gpt", "--dp", "zero3", "--find-unused"), "--find-unused is an option of DDP"),
        (("gpt", *HSDP, "--no-overlap"), "--no-overlap is an option of DDP, which --dp hsdp does not use"),
        (("gpt", "--dp", "zero2", "--compile"), "--compile has no effect with --dp zero2"),
    ],
)
def test_what_does_not_work_together_is_refused_by_name(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_job([*options])


@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_every_strategy_is_one_of_gpt(name: str) -> None:
    assert STRATEGIES.load(name).name == name
    mesh = HSDP[2:] if name == "hsdp" else ()
    assert parse_job(["gpt", "--dp", name, *mesh]).run.dp == name


def test_workloads_name_strategies_that_exist() -> None:
    for workload in map(WORKLOADS.load, WORKLOADS.builtin):
        assert {*STRATEGIES.names()} >= workload.STRATEGIES
