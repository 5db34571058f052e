from pathlib import Path

import pytest

import perfkit
from perfkit.errors import UsageError
from perfkit.tools.plan.api import own_module, parse_inputs
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.traced.launch import OwnModule, TraceRequest, trace
from tests.support import traced_model
from tests.support.traced_model import LAYERS, SAMPLES, WIDTH

FILE = str(Path(traced_model.__file__))
PARAMETERS = LAYERS * (WIDTH * WIDTH + WIDTH) + WIDTH * 10 + 10


@pytest.mark.slow
def test_a_plan_from_python_counts_every_tensor_of_a_module() -> None:
    plan = perfkit.plan(traced_model.build, traced_model.batch, ranks=2, device="a100-40g")
    assert plan.model.parameters == PARAMETERS
    assert plan.global_batch == 2 * SAMPLES
    found = {one.dp: one for one in plan.layouts}
    memory = found["ddp"].memory
    assert memory.parameters_bytes + memory.gradients_bytes == 8 * PARAMETERS
    assert memory.optimizer_bytes == 8 * PARAMETERS + 4 * 2 * (LAYERS + 1)
    # Forward and backward of each matrix are 6 FLOP per entry and sample, but the first input needs no gradient.
    matrices = LAYERS * WIDTH * WIDTH + WIDTH * 10
    assert plan.model.flops_per_token == 6 * matrices - 2 * WIDTH * WIDTH
    traced = [one.traced for one in plan.layouts]
    assert all(one is not None and one.formula_peak_bytes is None for one in traced)
    assert found["zero3"].memory.peak_bytes < found["zero1"].memory.peak_bytes < found["ddp"].memory.peak_bytes
    assert plan.best is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "message"), [("number", "returned int, not a torch module"), ("broken", "two lines")]
)
def test_what_is_wrong_with_a_module_is_one_line(function: str, message: str) -> None:
    own = OwnModule(path=FILE, function=function)
    request = TraceRequest(layouts=[Layout()], precision="float32", samples=[1], stages=[0], own=own)
    with pytest.raises(UsageError, match=message):
        trace(request)


def test_inputs_are_shapes_with_a_type() -> None:
    first, second = parse_inputs(["4, 512:int64", "3"])
    assert (first.shape, first.dtype) == ((4, 512), "int64")
    assert (second.shape, second.dtype) == ((3,), "float32")


@pytest.mark.parametrize("text", ["", "4x4", "4:complex64", "0", "9999999999,9999999999", "-1"])
def test_bad_inputs_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--input"):
        parse_inputs([text])


def test_a_module_needs_inputs_from_one_place() -> None:
    with pytest.raises(UsageError, match="use one of them"):
        own_module(f"{FILE}:build", [], None)
    with pytest.raises(UsageError, match="no such file"):
        own_module("nowhere.py:build", ["1"], None)


def test_functions_that_another_process_cannot_find_are_refused() -> None:
    with pytest.raises(UsageError, match="at the top of a file"):
        perfkit.plan(lambda: None, traced_model.batch)
