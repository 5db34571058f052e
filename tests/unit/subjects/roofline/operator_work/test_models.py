"""Work of operators from their arguments, worked out by hand."""

from typing import Any

import pytest

from perfkit.subjects.roofline.operator_work.arguments import UnknownArgumentsError, Work, broadcast, decode_arguments
from perfkit.subjects.roofline.operator_work.models.table import MODELS

Shape = list[int]


def work_of(operator: str, dims: list[Any], dtype: str = "float", concrete: list[str] | None = None) -> Work:
    """Return the work of an operator whose arguments with dimensions are tensors of one type."""
    types = ["TensorList" if one and isinstance(one[0], list) else dtype if one else "Scalar" for one in dims]
    return MODELS[operator].work(decode_arguments(dims, types, concrete))


@pytest.mark.parametrize(
    ("operator", "dims", "flops", "elements"),
    [
        ("aten::mm", [[2, 3], [3, 5]], 60, 6 + 15 + 10),
        ("aten::addmm", [[5], [2, 3], [3, 5], [], []], 60, 5 + 6 + 15 + 10),
        ("aten::bmm", [[4, 2, 3], [4, 3, 5]], 240, 24 + 60 + 40),
        ("aten::baddbmm", [[4, 2, 5], [4, 2, 3], [4, 3, 5], [], []], 240, 40 + 24 + 60 + 40),
        ("aten::linear", [[7, 2, 3], [5, 3], [5]], 420, 42 + 15 + 5 + 70),
        ("aten::linear", [[3], [5, 3], []], 30, 3 + 15 + 5),
        ("aten::matmul", [[7, 2, 3], [3, 5]], 420, 42 + 15 + 70),
        ("aten::matmul", [[4, 1, 2, 3], [6, 3, 5]], 24 * 60, 24 + 90 + 240),
        ("aten::matmul", [[3], [3]], 6, 3 + 3 + 1),
        ("aten::matmul", [[2, 3], [3]], 12, 6 + 3 + 2),
        ("aten::_grouped_mm", [[8, 3], [2, 3, 5], [2]], 240, 24 + 30 + 40),
    ],
)
def test_matrix_products(operator: str, dims: list[Any], flops: int, elements: int) -> None:
    assert work_of(operator, dims) == Work(flops, 4 * elements, "float32")
    assert work_of(operator, dims, "c10::BFloat16") == Work(flops, 2 * elements, "bfloat16")


@pytest.mark.parametrize(
    ("operator", "dims"),
    [
        ("aten::mm", [[2, 3], [4, 5]]),
        ("aten::mm", [[2, 3, 1], [1, 5]]),
        ("aten::mm", [[2, 3]]),
        ("aten::mm", []),
        ("aten::mm", [[2, 3], [[3, 5]]]),
        ("aten::bmm", [[4, 2, 3], [3, 3, 5]]),
        ("aten::linear", [[2, 3], [3], []]),
        ("aten::matmul", [[4, 2, 3], [5, 3, 5]]),
        ("aten::mm", [[2**40, 2**40], [2**40, 2]]),
        ("aten::mm", [[-2, 3], [3, 5]]),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], []]),
        ("aten::add", [[2, 3], [4]]),
        ("aten::_foreach_add_", [[], []]),
        ("aten::_scaled_dot_product_flash_attention", [[2, 3, 4], [2, 3, 4], [2, 3, 4]]),
        ("aten::_flash_attention_forward", [[99, 4, 8], [99, 4, 8], [99, 4, 8]]),
    ],
)
def test_unknown_or_impossible_arguments_have_no_work(operator: str, dims: list[Any]) -> None:
    with pytest.raises(UnknownArgumentsError):
        work_of(operator, dims)


def convolved(
    dims: list[Shape], stride: str, padding: str, dilation: str, transposed: str, output_padding: str, groups: str
) -> Work:
    values = ["", "", "", stride, padding, dilation, transposed, output_padding, groups]
    return work_of("aten::convolution", [*dims, [], [], [], [], [], [], []], concrete=values)


def test_convolutions() -> None:
    x, weight = [2, 3, 8, 10], [4, 3, 3, 3]
    plain = convolved([x, weight], "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
    assert plain == Work(2 * 2 * 80 * 4 * 27, 4 * (480 + 108 + 2 * 4 * 80), "float32")
    strided = convolved([x, weight], "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
    assert strided.flops == 2 * 2 * (4 * 5) * 4 * 27
    dilated = convolved([x, weight], "[1]", "[0]", "[2]", "False", "[0]", "1")
    assert dilated.flops == 2 * 2 * (4 * 6) * 4 * 27
    grouped = convolved([[2, 4, 8, 10], [4, 1, 3, 3]], "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "4")
    assert grouped.flops == 2 * 2 * 80 * 4 * 9
    upward = convolved([[2, 3, 4, 4], [3, 5, 2, 2]], "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1")
    assert upward == Work(2 * 2 * 16 * 3 * 5 * 4, 4 * (96 + 60 + 2 * 5 * 64), "float32")
    assert (
        convolved([[3, 8, 10], weight], "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1").flops == plain.flops / 2
    )


def test_gradients_of_convolutions_that_are_not_wanted_cost_nothing() -> None:
    dims: list[Any] = [[2, 4, 8, 10], [2, 3, 8, 10], [4, 3, 3, 3], [], [], [], [], [], [], [], []]
    values = ["", "", "", "[4]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    once = 2 * 2 * 80 * 4 * 27
    for mask, times in (("[True, True, True]", 2), ("[False, True, True]", 1), ("[False, False, True]", 0)):
        assert work_of("aten::convolution_backward", dims, concrete=[*values, mask]).flops == times * once
    with pytest.raises(UnknownArgumentsError):
        work_of("aten::convolution_backward", dims, concrete=[*values, ""])


def test_attention() -> None:
    query, key, value = [2, 8, 5, 16], [2, 4, 7, 16], [2, 4, 7, 10]  # two heads of the query share one of the key
    scores = 2 * 8 * 5 * 7
    forward = work_of("aten::_scaled_dot_product_flash_attention", [query, key, value])
    assert forward == Work(2 * scores * 26, 4 * (1280 + 896 + 560 + 800 + 80), "float32")
    gradient = [2, 8, 5, 10]
    backward = work_of("aten::_scaled_dot_product_flash_attention_backward", [gradient, query, key, value])
    assert backward == Work(2 * scores * (3 * 16 + 2 * 10), 4 * (2 * (800 + 1280 + 896 + 560) + 80), "float32")
    turned = [[one[0], one[2], one[1], one[3]] for one in (query, key, value)]
    assert work_of("aten::_flash_attention_forward", turned) == forward


@pytest.mark.parametrize(
    ("operator", "dims", "flops", "elements"),
    [
        ("aten::add", [[4, 6], [6], []], 24, 24 + 6 + 24),
        ("aten::add_", [[4, 6], [6], []], 24, 24 + 6 + 24),
        ("aten::relu", [[4, 6]], 24, 48),
        ("aten::copy_", [[4, 6], [4, 6], []], 0, 48),
        ("aten::fill_", [[4, 6], []], 0, 24),
        ("aten::sum", [[4, 6], []], 24, 24),
        ("aten::native_layer_norm", [[4, 6], [], [6], [6], []], 168, 24 + 12 + 24),
        ("aten::_softmax", [[4, 6], [], []], 120, 48),
        ("aten::_foreach_sqrt", [[[4, 6], [6]]], 0, 60),
        ("aten::_foreach_add_", [[[4, 6], [6]], [[4, 6], [6]], []], 0, 90),
        ("aten::_foreach_norm", [[[4, 6], [6]], []], 0, 30),
        ("aten::_fused_adamw_", [*[[[4, 6]]] * 4, [], [[]], []], 0, 7 * 24),
        ("aten::_fused_sgd_", [[[4, 6]], [[4, 6]], [], []], 0, 3 * 24),
    ],
)
def test_operators_that_pass_over_their_tensors(operator: str, dims: list[Any], flops: int, elements: int) -> None:
    found = work_of(operator, dims)
    assert (found.flops, found.bytes) == (flops, 4 * elements)


def test_types_of_operators_with_several() -> None:
    masked = decode_arguments([[4, 6], [4, 6], []], ["c10::Half", "bool", "Scalar"], None)
    assert MODELS["aten::masked_fill"].work(masked) == Work(0, 48 + 24 + 48, "float16")
    compared = decode_arguments([[4, 6], []], ["float", "Scalar"], None)
    assert MODELS["aten::gt"].work(compared) == Work(24, 96 + 24, "float32")
    # A scalar tensor of a wider type does not widen the result.
    scaled = decode_arguments([[4, 6], []], ["c10::BFloat16", "float"], None)
    assert MODELS["aten::mul"].work(scaled) == Work(24, 48 + 4 + 48, "bfloat16")
    looked_up = decode_arguments(
        [[50, 8], [3, 4], [], [], []], ["float", "long int", "Scalar", "Scalar", "Scalar"], None
    )
    assert MODELS["aten::embedding"].work(looked_up) == Work(0, 12 * 8 + 2 * 12 * 8 * 4, "float32")
    summed = decode_arguments([[4, 6], [], [], []], ["float", "ScalarList", "Scalar", ""], ["", "[-1]", "False", ""])
    assert MODELS["aten::sum"].work(summed) == Work(24, 4 * (24 + 4), "float32")


@pytest.mark.parametrize(
    ("dims", "types"),
    [(None, None), ([[1]], None), ([[1]], ["float", "float"]), ("x", "x"), ([[1]] * 65, ["float"] * 65)],
)
def test_damaged_arguments(dims: Any, types: Any) -> None:
    with pytest.raises(UnknownArgumentsError):
        decode_arguments(dims, types, None)


@pytest.mark.parametrize("shape", ["x", [1.5], [True], [-1], [2**62, 4], [1] * 17, None, {}])
def test_damaged_shapes_are_no_tensors(shape: Any) -> None:
    found = decode_arguments([shape, [[1], shape]], ["float", "TensorList"], ["[", 3])
    assert (found.tensors, found.lists, found.values) == ((None, None), (None, None), (None, None))


def test_broadcasting() -> None:
    assert broadcast([(4, 1, 3), (2, 1), ()]) == (4, 2, 3)
    assert broadcast([]) == ()
    with pytest.raises(UnknownArgumentsError):
        broadcast([(2,), (3,)])


def test_every_model_survives_arguments_of_any_kind() -> None:
    listed: list[list[Any]] = [[], [[]], [[], [], []], [[2, 3]] * 3, [[[2], [3]]] * 6, [[0, 4, 0, 4]] * 5]
    for dims in listed:
        for dtype in ("float", "", "Scalar", "TensorList"):
            for concrete in (None, ["[0, 0]"] * len(dims), ["True"] * len(dims), ["-1"] * len(dims)):
                arguments = decode_arguments(dims, [dtype] * len(dims), concrete)
                for model in MODELS.values():
                    try:
                        work = model.work(arguments)
                    except UnknownArgumentsError:
                        continue
                    assert work.flops >= 0
                    assert work.bytes >= 0
