import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.options.script_arguments import name_arguments, read_arguments
from perfkit.tools.sweep.plan import ScriptTarget

NAMES = ["--url", "--lr", "--batch-size", "-s", "n_layer"]
VALUES = st.sampled_from(["1", "-1", "-0.5", "a=b", "x=--y", "postgres://h/?a=b&c=d", "", "data/x.h5"])


def test_arguments_are_named_as_a_script_reads_them() -> None:
    tokens = ["train", "--lr=1", "--bs", "8", "-v", "--fast", "--x", "-1", "out", "data.n=3", "--url", "a=b", "--u=a=b"]
    assert name_arguments([*tokens, "--no-cache"]) == {
        "argument 1": "train",
        "--lr": "1",
        "--bs": "8",
        "-v": "on",
        "--fast": "on",
        "--x": "-1",
        "argument 9": "out",
        "data.n": "3",
        "--url": "a=b",
        "--u": "a=b",
        "--no-cache": "on",
    }


def test_a_setting_after_one_letter_is_named_by_itself() -> None:
    assert name_arguments(["-m", "lr=1", "model/size=2"]) == {"-m": "on", "lr": "1", "model/size": "2"}
    assert name_arguments(["-s", "3", "-f", "http://h/?a=b"]) == {"-s": "3", "-f": "http://h/?a=b"}


def test_a_repeated_option_has_all_of_its_values() -> None:
    assert name_arguments(["--data", "a", "--data=b", "-v", "-v"]) == {"--data": "a, b", "-v": "on, on"}


def test_nothing_is_an_option_after_two_dashes() -> None:
    found = [(one.name, one.value) for one in read_arguments(["--fast", "--", "--lr", "k=1"])]
    assert found == [("--fast", None), ("argument 2", "--"), ("argument 3", "--lr"), ("k", "1")]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["--url", "--lr", "--batch-size"]), VALUES, st.booleans()),
            st.tuples(st.just("--flag"), st.none(), st.booleans()),
        ),
        max_size=8,
    )
)
def test_a_script_of_argparse_reads_the_same_values(given: list[tuple[str, str | None, bool]]) -> None:
    tokens: list[str] = []
    for name, value, is_joined in given:
        tokens += [name] if value is None else [f"{name}={value}"] if is_joined else [name, value]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--url", "--lr", "--batch-size"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--flag", action="count", default=0)
    own = vars(parser.parse_args(tokens))
    found = read_arguments(tokens)
    for name in ("--url", "--lr", "--batch-size"):
        assert [one.value for one in found if one.name == name] == own[name[2:].replace("-", "_")]
    assert [one.value for one in found if one.name == "--flag"] == [None] * own["flag"]


@given(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=5), st.sampled_from([True, False]))
def test_another_batch_changes_that_argument_alone(others: list[tuple[str, str]], is_joined: bool) -> None:
    rest = [token for name, value in others if name != "n_layer" for token in (name, value)]
    batch = ["--bs=8"] if is_joined else ["--bs", "8"]
    target = ScriptTarget(tokens=("t.py",), arguments=("--bs=3", *rest, *batch, "n_layer=2"), batch_arg="--bs")
    assert target.batch_size == 8
    changed = ["--bs=16"] if is_joined else ["--bs", "16"]
    assert target.filled({}, 16) == ["--bs=3", *rest, *changed, "n_layer=2"]


@pytest.mark.parametrize("other", [["--url", "--bs=8"], ["--bs"], ["--bs", "--lr", "1"], ["--bs", "x=8"]])
def test_a_value_of_another_option_is_no_batch(other: list[str]) -> None:
    from perfkit.errors import UsageError

    target = ScriptTarget(tokens=("t.py",), arguments=tuple(other), batch_arg="--bs")
    if other[0] == "--url":  # a value that begins as an option does is one, as argparse has it
        assert target.batch_size == 8
        return
    with pytest.raises(UsageError, match="give its value after --"):
        _ = target.batch_size
