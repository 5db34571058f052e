"""Sweeps of a script: what `perfkit run` is given for each point."""

import re
from typing import Any

import pytest

from perfkit.errors import UsageError
from perfkit.tools.sweep.plan import Axis, ScriptTarget, SweepSpec, arguments, combinations, plan
from perfkit.tools.sweep.point import Point
from tests.support.reports.sweep_builders import wanted

DATA = Axis("source", ("memory", "hdf5"))


def asked(*tokens: str, batch_arg: str | None = None, **given: Any) -> SweepSpec:
    script = ScriptTarget(tokens=("train.py",), arguments=tokens, batch_arg=batch_arg)
    return wanted(**({"workload": "train", "script": script, "axes": ()} | given))


def points_of(spec: SweepSpec) -> list[Point]:
    configs = []
    for varied in combinations(spec):
        tokens = arguments(spec, varied)
        own = tokens[tokens.index("--") + 1 :]
        source = varied.get("source", "custom")
        configs.append({"script": "train.py", "arguments": own, "source": source, "trace_dir": "traces/s"})
    return plan(spec, configs)


def scripts(spec: SweepSpec) -> list[tuple[int, list[str]]]:
    found = [(point.ranks, point.command) for point in points_of(spec)]
    return [(ranks, command[command.index("--") + 1 :]) for ranks, command in found]


def test_a_script_keeps_its_arguments_behind_the_options_of_the_run() -> None:
    one, two = points_of(asked("--epochs", "1", "--", "x", options=("--no-profile",)))
    own = ["train.py", "--no-profile", "--trace-dir", "traces/s", "--no-report", "--name", one.name]
    assert one.command == ["run", *own, "--", "--epochs", "1", "--", "x"]
    assert one.title == "train-1rank"
    assert (one.scaling, two.scaling) == ((), ())  # what it trains on in a step decides
    assert one.key != two.key


def test_names_in_braces_are_filled_and_the_ranks_left_to_the_run() -> None:
    spec = asked(
        "--data={source}.h5", "--lr", "{lr}", "--out", "o{ranks}", axes=(DATA, Axis("lr", ("1", "2"))), ranks=(2,)
    )
    assert scripts(spec)[3] == (2, ["--data=hdf5.h5", "--lr", "2", "--out", "o{ranks}"])
    first = points_of(spec)[0]
    assert first.command[2:5] == ["--source=memory", "--trace-dir", "traces/s"]
    assert "--fill-ranks" in first.command
    assert first.title == "train-memory-2ranks-lr=1"


@pytest.mark.parametrize("given", [["--bs=16"], ["--bs", "16"]])
def test_strong_scaling_divides_the_argument_with_the_batch(given: list[str]) -> None:
    spec = asked("-v", *given, batch_arg="--bs", scaling=("strong", "weak"))
    found = [(ranks, own[1:]) for ranks, own in scripts(spec)]
    half = [token.replace("16", "8") for token in given]
    assert found == [(1, given), (2, half), (2, given)]
    assert [point.scaling for point in points_of(spec)] == [("strong", "weak"), ("strong",), ("weak",)]
    assert [point.batch_size for point in points_of(spec)] == [16, 8, 16]
    assert "--batch-arg=--bs" in points_of(spec)[0].command


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"batch_arg": "--bs"}, "--batch-arg --bs: give its value after --, such as --bs=32"),
        ({"tokens": ("--bs", "x"), "batch_arg": "--bs"}, "--batch-arg --bs: give its value"),
        ({"axes": (DATA,)}, "--source: name it in the script's arguments"),
        ({"axes": (Axis("lr", ("1",)),)}, "--vary lr: no option of perfkit run, and no {lr} in the script's arguments"),
        ({"options": ("--name", "x")}, "--name in --run-options: the sweep names its runs"),
        (
            {"tokens": ("--bs=5",), "batch_arg": "--bs", "scaling": ("strong",), "ranks": (2, 3)},
            "3 ranks do not divide",
        ),
    ],
)
def test_what_would_change_nothing_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        points_of(asked(*given.pop("tokens", ()), **given))
