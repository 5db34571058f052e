"""Whose a Python function is, and the places of a stack that a table shows."""

import pytest

from perfkit.python_functions import callers, is_own


@pytest.mark.parametrize(
    ("name", "own"),
    [
        (".venv/bin/perfkit(8): <module>", False),
        ("bin/torchrun(8): <module>", False),
        ("bin/train(8): <module>", True),
        ("perfkit_study/train.py(8): <module>", True),
        ("cabin/perfkit.py(8): main", True),
    ],
)
def test_the_command_that_runs_the_program_is_not_its_function(name: str, own: bool) -> None:
    assert is_own(name) is own


TORCH = ["torch/nn/functional.py(6191): relu", "nn.Module: Net_0", "torch/nn/modules/module.py(1782): _call_impl"]


@pytest.mark.parametrize(
    ("stack", "places"),
    [
        (["<built-in method relu>", *TORCH, "src/net.py(88): forward", "a.py(20): f"], ["net.py:88", "a.py:20"]),
        (["net.py(88): forward", *TORCH, "a.py(2): f", "a.py(1): g"], ["net.py:88", "a.py:2"]),
        (["<built-in method relu>", *TORCH], ["functional.py:6191", "module.py:1782"]),
        (["at::empty", "c10::alloc", "main"], ["at::empty", "c10::alloc"]),
        ([], []),
    ],
)
def test_a_stack_is_told_by_its_innermost_places_in_the_program(stack: list[str], places: list[str]) -> None:
    assert callers(stack, 2) == places
