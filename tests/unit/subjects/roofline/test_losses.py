"""What is said of how operators use the device, and when nothing may be said."""

import pytest
from msgspec.structs import replace

from perfkit.pipeline.words import find_insights
from perfkit.records.per_rank.work import Work, WorkNode, WorkTree
from perfkit.records.report import Insight
from perfkit.records.run import RunReport
from tests.support.reports.report_builders import MS, make_operator
from tests.support.reports.roofline_builders import A100, STEPS, roofline_row, roofline_run


def insights(run: RunReport) -> dict[str, Insight]:
    rules = ("float32_products", "unfused_elementwise", "unaligned_products")
    return {one.rule: one for one in find_insights([run], None).insights if one.rule in rules}


def test_products_in_float32_on_a_device_with_tensor_cores() -> None:
    run = roofline_run(roofline_row("gemm", 30, tensor_cores=False), roofline_row("normalisation", 40))
    found = insights(run)["float32_products"]
    assert found.sentence.endswith(": 30 % is products in float32; bfloat16 is up to 16 times as fast")
    assert found.recommendation == (
        "allow TF32: torch.set_float32_matmul_precision('high'); or train in mixed precision (torch.autocast in "
        "bfloat16; --precision bfloat16)"
    )
    # A tenth of the bandwidth was used: half of the bytes need 1.5 of the 30 ms, and the operations less.
    assert found.potential_saving_ns == pytest.approx(28.5 * MS)


def test_nothing_is_promised_that_the_device_cannot_give() -> None:
    # In float32 at its peak: 30 ms need at least 30 / 16 ms in bfloat16.
    full = roofline_row("gemm", 30, tensor_cores=False, flops=4 * 30e-3 * 19.5e12, bytes=1)
    assert insights(roofline_run(full))["float32_products"].potential_saving_ns == pytest.approx(30 * MS * 15 / 16)
    # Bound by memory at its full bandwidth: half the bytes are half the time.
    memory = roofline_row("gemm", 30, tensor_cores=False, bytes=4 * 30e-3 * 1555e9)
    assert insights(roofline_run(memory))["float32_products"].potential_saving_ns == pytest.approx(15 * MS)


def test_a_device_whose_tensor_cores_have_no_tf32() -> None:
    volta = replace(A100, name="Tesla V100-SXM2-16GB", tflops={"float32": 15.7, "float16": 125})
    found = insights(roofline_run(roofline_row("gemm", 30), peaks=volta))["float32_products"]
    assert found.recommendation == "train in mixed precision (torch.autocast in float16; --precision float16)"


@pytest.mark.parametrize(
    "run",
    [
        roofline_run(roofline_row("gemm", 30, tensor_cores=True)),
        roofline_run(roofline_row("gemm", 30, tensor_cores=None)),  # which of the two is not known
        roofline_run(roofline_row("gemm", 30, dtype="bfloat16")),
        roofline_run(roofline_row("gemm", 4, tensor_cores=False)),
        roofline_run(roofline_row("gemm", 30, tensor_cores=False), peaks=None),
        roofline_run(roofline_row("gemm", 30), peaks=replace(A100, tflops={"float32": 19.5, "float16": 20})),
        roofline_run(roofline_row("normalisation", 30)),
    ],
)
def test_silence_about_float32(run: RunReport) -> None:
    assert "float32_products" not in insights(run)


def test_elementwise_operators() -> None:
    run = roofline_run(roofline_row("elementwise", 20), roofline_row("copy", 4), roofline_row("gemm", 50))
    found = insights(run)["unfused_elementwise"]
    assert found.sentence.endswith(": 24 % is 40 element-wise operators and copies")
    assert found.recommendation.endswith("torch.compile, or fused modules")
    assert found.potential_saving_ns == 24 * MS
    without = insights(roofline_run(roofline_row("elementwise", 20), peaks=None))["unfused_elementwise"]
    assert without.sentence.endswith(": 20 % is 20 element-wise operators and copies")


def of_functions(run: RunReport, **own_ms: int) -> RunReport:
    """A run whose operators were issued by functions of the program, each of so many milliseconds per step."""
    nodes = [
        WorkNode(depth=0, name=f"train.py(1): {name}" if name != "outside" else "(outside)", total_ns=ns, self_ns=ns)
        for name, ns in ((name, STEPS * ms * MS) for name, ms in own_ms.items())
    ]
    total_ns = sum(node.total_ns for node in nodes)
    work = Work(
        on="device",
        count=1,
        total_ns=total_ns,
        exposed_ns=total_ns,
        communication_bytes=0,
        phases=[],
        trees=[WorkTree(by="python", nodes=nodes)],
    )
    return replace(run, ranks=[replace(run.ranks[0], work=work)])


def test_the_function_that_must_have_issued_most_of_it_is_named() -> None:
    run = roofline_run(roofline_row("elementwise", 40), roofline_row("gemm", 20))
    sentence = insights(of_functions(run, augment=45, main=15))["unfused_elementwise"].sentence
    assert sentence.endswith("operators and copies, mostly in train.py(1): augment")


@pytest.mark.parametrize(
    "own_ms",
    [
        {"augment": 39, "main": 21},  # it may have issued all products, and 19 of the 40 ms
        {"outside": 60},
        {"<module>": 60},
        {},
    ],
)
def test_no_function_is_named_that_may_have_issued_other_operators(own_ms: dict[str, int]) -> None:
    run = roofline_run(roofline_row("elementwise", 40), roofline_row("gemm", 20))
    assert "mostly in" not in insights(of_functions(run, **own_ms))["unfused_elementwise"].sentence


def test_where_copies_are_most_of_it_the_advice_is_about_copies() -> None:
    few = roofline_run(roofline_row("elementwise", 4), roofline_row("copy", 20, count=2 * STEPS))
    assert insights(few)["unfused_elementwise"].recommendation == (
        "copy and convert tensors less often (.to, .clone, .contiguous, .cpu): most of it is copies"
    )


def test_perfkits_own_option_is_named_where_there_is_one() -> None:
    run = roofline_run(roofline_row("elementwise", 20), config={"compile": False})
    assert insights(run)["unfused_elementwise"].recommendation.endswith("use --compile")


@pytest.mark.parametrize(
    "run",
    [
        roofline_run(roofline_row("elementwise", 9)),
        roofline_run(roofline_row("elementwise", 30, count=36)),  # few and large
        roofline_run(roofline_row("gemm", 30)),
        roofline_run(roofline_row("elementwise", 30), config={"compile": True}),
        roofline_run(roofline_row("elementwise", 30), config={"compile": False, "dp": "zero3"}),
    ],
)
def test_silence_about_elementwise_operators(run: RunReport) -> None:
    assert "unfused_elementwise" not in insights(run)


@pytest.mark.parametrize("name", ["triton_poi_fused_add_0", "Torch-Compiled Region: 0/0"])
def test_silence_where_a_compiler_worked(name: str) -> None:
    run = roofline_run(roofline_row("elementwise", 30))
    compiled = replace(run, ranks=[replace(run.ranks[0], operators=[make_operator(name)])])
    assert "unfused_elementwise" in insights(run)
    assert "unfused_elementwise" not in insights(compiled)


def test_sizes_that_tensor_cores_do_not_like() -> None:
    row = roofline_row("gemm", 20, dtype="float16", shapes="8192×768, 768×50257")
    found = insights(roofline_run(row, roofline_row("gemm", 30, dtype="float16")))["unaligned_products"]
    assert found.sentence.endswith(": 20 % is products in half precision with sizes that are no multiple of 8")
    assert found.potential_saving_ns == pytest.approx(18 * MS)


UNALIGNED = "64×63, 63×64"


@pytest.mark.parametrize(
    "run",
    [
        roofline_run(roofline_row("gemm", 20, dtype="float16")),
        roofline_run(roofline_row("gemm", 20, dtype="float16", shapes="3×64×64, 3×64×64")),  # a batch may be odd
        roofline_run(roofline_row("gemm", 20, shapes=UNALIGNED, tensor_cores=False)),
        roofline_run(roofline_row("gemm", 4, dtype="float16", shapes=UNALIGNED)),
        roofline_run(
            roofline_row("gemm", 20, dtype="float16", shapes=UNALIGNED, bound_ns=70 * MS)
        ),  # fast all the same
        roofline_run(roofline_row("gemm", 20, dtype="float16", shapes=UNALIGNED, bound=None, bound_ns=None)),
        roofline_run(roofline_row("gemm", 20, dtype="float16", shapes=UNALIGNED), peaks=replace(A100, name="AMD X")),
        roofline_run(roofline_row("gemm", 20, dtype="float16", shapes=UNALIGNED), peaks=None),
    ],
)
def test_silence_about_sizes(run: RunReport) -> None:
    assert "unaligned_products" not in insights(run)
