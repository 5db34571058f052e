import pytest

from perfkit.tools.plan.formulas.stage import Stage, state_of
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.models import gpt_model
from perfkit.tools.plan.planner import Request, make_plan
from perfkit.tools.plan.precision import PRECISIONS
from perfkit.tools.plan.shape import counted_shape, gpt_shape

# What `make strategies` counted on real ranks (docs/strategies.md): KiB of P + G + O of the rank with most.
COUNTED = [
    ({"shard": 2}, 836),
    ({"dp": "zero1", "shard": 2}, 627),
    ({"dp": "zero2", "shard": 2}, 418),
    ({"dp": "zero3", "shard": 2}, 418),
    ({"tp": 2}, 429),
    ({"pp": 2}, 438),
    ({"dp": "zero1", "shard": 4}, 522),
    ({"dp": "zero3", "shard": 4}, 209),
    ({"dp": "hsdp", "replicate": 2, "shard": 2}, 418),
    ({"dp": "zero3", "shard": 2, "tp": 2}, 215),
    ({"dp": "zero3", "shard": 2, "pp": 2}, 219),
    ({"pp": 2, "tp": 2}, 226),
    ({"dp": "zero3", "shard": 8}, 105),
    ({"dp": "zero3", "shard": 2, "pp": 2, "tp": 2}, 113),
]


@pytest.mark.parametrize(("sizes", "kibibytes"), COUNTED)
def test_the_state_is_what_real_ranks_counted(sizes: dict[str, int], kibibytes: int) -> None:
    shape = gpt_shape(name="gpt", layers=4, width=32, heads=4, block=16, vocabulary=65, bias=True)
    layout = Layout(**sizes)  # type: ignore[arg-type]
    stages = [state_of(Stage(shape, layout, PRECISIONS["float32"], stage)) for stage in range(layout.pp)]
    assert round(max(state.total_bytes for state in stages) / 1024) == kibibytes


@pytest.mark.parametrize(
    ("sizes", "kibibytes"),
    [({"shard": 2}, 2410), ({"ep": 2}, 1366), ({"shard": 2, "ep": 2}, 1366), ({"shard": 2, "ep": 4}, 844)],
)
def test_the_state_of_experts_is_what_real_ranks_counted(sizes: dict[str, int], kibibytes: int) -> None:
    shape = gpt_shape(name="gpt", layers=4, width=32, heads=4, block=16, vocabulary=65, bias=True, experts=4, top_k=2)
    state = state_of(Stage(shape, Layout(**sizes), PRECISIONS["float32"], 0))  # type: ignore[arg-type]
    assert round(state.total_bytes / 1024) == kibibytes


def test_ranks_that_divide_a_sequence_share_the_optimizer_state() -> None:
    shape = gpt_shape(name="gpt", layers=4, width=64, heads=4, block=64, vocabulary=512, bias=True)
    assert state_of(Stage(shape, Layout(dp="zero1", cp=2), PRECISIONS["float32"], 0)).optimizer_bytes == 950_308


def test_experts_of_zero_1_are_whole_tensors_of_a_rank() -> None:
    shape = gpt_shape(name="gpt", layers=4, width=64, heads=4, block=64, vocabulary=512, bias=True, experts=4, top_k=2)
    assert state_of(Stage(shape, Layout(dp="zero1", shard=4), PRECISIONS["float32"], 0)).optimizer_bytes == 1_310_732


def test_the_figures_of_the_zero_paper() -> None:
    """Rajbhandari et al. (2020), figure 1: 7.5 B parameters on 64 devices, K = 12."""
    plan = make_plan(Request(shape=counted_shape(7.5e9), ranks=64, global_batch=64, precision="mixed"))
    needs = [(one.dp, one.memory) for one in plan.layouts]
    found = {dp: (it.parameters_bytes + it.gradients_bytes + it.optimizer_bytes) / 1e9 for dp, it in needs}
    assert found["ddp"] == 120
    assert [round(found[name], 1) for name in ("zero1", "zero2", "zero3")] == [31.4, 16.6, 1.9]


def test_a_trillion_parameters_in_terabytes() -> None:
    shape = counted_shape(1e12, layers=120, width=12288, sequence=2048)
    request = Request(shape=shape, ranks=1, global_batch=128, precision="half", checkpointing="full")
    terms = {term.name: term.value / 1e12 for term in make_plan(request).layouts[0].terms}
    assert [terms[name] for name in ("parameters", "gradients", "optimizer state")] == [2, 2, 4]
    assert round(terms["stored by the layers"], 1) == 0.8
    assert round(sum(list(terms.values())[:4]), 1) == 8.8


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080), ("gpt2-xl", 1_557_611_200)],
)
def test_the_sizes_of_gpt2(preset: str, parameters: int) -> None:
    assert gpt_model(preset, {}).shape.parameters == parameters


def test_405_billion_parameters_take_810_gigabytes_in_16_bits() -> None:
    plan = make_plan(Request(shape=counted_shape(405e9), ranks=1, global_batch=1, precision="mixed"))
    assert plan.layouts[0].memory.parameters_bytes == 810 * 10**9
