import pytest

from perfkit.tools.plan.formulas.stage import Stage
from perfkit.tools.plan.formulas.step_time import Rates, time_step
from perfkit.tools.plan.formulas.traffic import Message, messages_of
from perfkit.tools.plan.hardware import find_hardware
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.precision import PRECISIONS
from perfkit.tools.plan.shape import Shape, gpt_shape

# Messages of a rank per step that real ranks' traces had, of gpt with 4 layers, width 64, 64 tokens, vocabulary 512 and
# 8 samples per rank: dimension, operator, messages, bytes.
RECORDED = [
    ({"shard": 2}, [("dp", "all_reduce", 1, 947_712)]),
    (
        {"dp": "zero3", "shard": 2},
        [
            ("dp", "all_gather", 10, 8 * 199_936 + 2 * 147_968),
            ("dp", "reduce_scatter", 5, 4 * 199_936 + 147_968),
            ("dp", "all_reduce", 1, 4),
        ],
    ),
    (
        {"dp": "zero2", "shard": 2},
        [
            ("dp", "all_gather", 5, 4 * 199_936 + 147_968),
            ("dp", "reduce_scatter", 5, 4 * 199_936 + 147_968),
            ("dp", "all_reduce", 1, 4),
        ],
    ),
    ({"dp": "zero1", "shard": 2}, [("dp", "all_reduce", 1, 947_712), ("dp", "broadcast", 52, 947_712)]),
    (
        {"tp": 2},
        [("tp", "all_reduce", 18, 18 * 131_072), ("tp", "all_gather", 1, 8 * 64 * 512 * 4), ("tp", "all_reduce", 1, 4)],
    ),
    (
        {"tp": 2, "checkpointing": "full"},
        [("tp", "all_reduce", 22, 22 * 131_072), ("tp", "all_gather", 1, 8 * 64 * 512 * 4), ("tp", "all_reduce", 1, 4)],
    ),
    (
        {"tp": 2, "sequence_parallel": True},
        [
            ("tp", "reduce_scatter", 17, 17 * 131_072),
            ("tp", "all_gather", 18, 18 * 131_072),
            ("tp", "all_reduce", 1, 131_072),
            ("tp", "all_reduce", 18, 18 * 256),
            ("tp", "all_gather", 1, 8 * 64 * 512 * 4),
            ("tp", "all_reduce", 1, 4),
        ],
    ),
    (
        {"tp": 2, "loss_parallel": True},
        [("tp", "all_reduce", 18, 18 * 131_072), ("tp", "all_reduce", 3, 3 * 2_048), ("tp", "all_reduce", 1, 4)],
    ),
    (
        {"tp": 2, "sequence_parallel": True, "checkpointing": "full"},
        [
            ("tp", "reduce_scatter", 21, 21 * 131_072),
            ("tp", "all_gather", 26, 26 * 131_072),
            ("tp", "all_reduce", 1, 131_072),
            ("tp", "all_reduce", 18, 18 * 256),
            ("tp", "all_gather", 1, 8 * 64 * 512 * 4),
            ("tp", "all_reduce", 1, 4),
        ],
    ),
    (
        {"pp": 2, "micro_batches": 4},
        [("pp", "send_recv", 8, 8 * 32_768), ("pp", "all_reduce", 1, 131_072), ("pp", "all_reduce", 1, 4)],
    ),
]
SHAPE = gpt_shape(name="gpt", layers=4, width=64, heads=4, block=64, vocabulary=512, bias=True)


# Sizes of sends and receives are not in traces of gloo: they follow from the tensors, 8 x 64 / cp x 2 x 64 x 4 bytes.
RECORDED_RING = [
    (
        {"cp": 2},
        [
            ("cp", "all_reduce", 1, 947_712),
            ("cp", "send_recv", 16, 16 * 131_072),
            ("cp", "send_recv", 16, 16 * 131_072),
        ],
    ),
    (
        {"cp": 2, "checkpointing": "full"},
        [
            ("cp", "all_reduce", 1, 947_712),
            ("cp", "send_recv", 24, 24 * 131_072),
            ("cp", "send_recv", 16, 16 * 131_072),
        ],
    ),
    (
        {"cp": 4},
        [
            ("cp", "all_reduce", 1, 947_712),
            ("cp", "send_recv", 48, 48 * 65_536),
            ("cp", "send_recv", 32, 32 * 65_536),
        ],
    ),
    (
        {"shard": 2, "cp": 2},
        [
            ("dp+cp", "all_reduce", 1, 947_712),
            ("cp", "send_recv", 16, 16 * 131_072),
            ("cp", "send_recv", 16, 16 * 131_072),
        ],
    ),
    (
        {"dp": "zero1", "cp": 2},
        [
            ("cp", "all_reduce", 1, 947_712),
            ("cp", "broadcast", 52, 947_712),
            ("cp", "send_recv", 16, 16 * 131_072),
            ("cp", "send_recv", 16, 16 * 131_072),
        ],
    ),
]


def test_gradients_of_keys_and_values_never_overlap() -> None:
    first, then = (one for one in messages(Layout(cp=4)) if one.operator == "send_recv")
    assert first.hidden == (0.5, 0.5)
    assert then.hidden == (0, 0)


MIXTURE = gpt_shape(name="gpt", layers=4, width=64, heads=4, block=64, vocabulary=512, bias=True, experts=4, top_k=2)
# The same with 4 experts, 2 of them for each token. Messages of rows are as large as the router makes them; with as
# many for each expert, 8 x 64 x 2 x 64 x 4 = 262,144 bytes.
RECORDED_MIXTURE = [
    ({"shard": 2}, [("dp", "all_reduce", 2, 2_540_032)]),
    (
        {"ep": 2},
        [
            ("ep", "all_reduce", 1, 422_400),
            ("ep", "all_to_all", 16, 16 * 262_144),
            ("ep", "all_to_all", 4, 4 * 32),
            ("ep", "all_reduce", 1, 4),
        ],
    ),
    (
        {"ep": 2, "checkpointing": "full"},
        [
            ("ep", "all_reduce", 1, 422_400),
            ("ep", "all_to_all", 24, 24 * 262_144),
            ("ep", "all_to_all", 8, 8 * 32),
            ("ep", "all_reduce", 1, 4),
        ],
    ),
    (
        {"shard": 2, "ep": 2},
        [
            ("dp+ep", "all_reduce", 1, 422_400),
            ("ep", "all_to_all", 16, 16 * 262_144),
            ("ep", "all_to_all", 4, 4 * 32),
            ("dp", "all_reduce", 1, 1_058_816),
            ("ep", "all_reduce", 1, 4),
        ],
    ),
    (
        {"dp": "zero3", "shard": 4},
        [
            ("dp", "all_gather", 10, 8 * 598_016 + 2 * 147_968),
            ("dp", "reduce_scatter", 5, 4 * 598_016 + 147_968),
            ("dp", "all_reduce", 1, 4),
        ],
    ),
]


def test_the_flop_of_a_token_are_those_of_its_experts() -> None:
    dense = SHAPE.flops_per_token
    experts = 6 * 4 * (64 * 4 + 8 * 64 * 64 + 5 * 64)  # of each layer one more MLP, and the router
    assert MIXTURE.flops_per_token == dense + experts


def messages(layout: Layout, *, batch: int = 8, shape: Shape = SHAPE) -> list[Message]:
    return messages_of(Stage(shape, layout, PRECISIONS["float32"], 0, batch // layout.micro_batches), clips=True)


@pytest.mark.parametrize(
    ("shape", "sizes", "expected"),
    [(SHAPE, *case) for case in RECORDED + RECORDED_RING] + [(MIXTURE, *case) for case in RECORDED_MIXTURE],
)
def test_messages_are_those_of_real_ranks(
    shape: Shape, sizes: dict[str, int], expected: list[tuple[str, str, int, int]]
) -> None:
    found = messages(Layout(**sizes), shape=shape)  # type: ignore[arg-type]
    assert [(one.dimension, one.operator, one.number, one.bytes) for one in found] == expected


def test_with_tensor_parallelism_only_matrices_outputs_are_in_16_bits() -> None:
    """Of bfloat16 runs: forward reductions are in 16 bits; inputs, and their gradients, in the residual's 32."""
    found = {
        sequence: [
            (one.operator, one.bytes)
            for one in messages_of(
                Stage(SHAPE, Layout(tp=2, sequence_parallel=sequence), PRECISIONS["bfloat16"], 0, 8), clips=False
            )
        ]
        for sequence in (False, True)
    }
    assert found[False] == [("all_reduce", 8 * 65_536 + 10 * 131_072), ("all_gather", 524_288)]
    assert found[True] == [
        ("reduce_scatter", 8 * 65_536 + 9 * 131_072),
        ("all_gather", 8 * 65_536 + 10 * 131_072),
        ("all_reduce", 131_072),
        ("all_reduce", 18 * 256),
        ("all_gather", 524_288),
    ]


@pytest.mark.parametrize(("micro_batches", "gathers"), [(2, 3), (4, 5)])
@pytest.mark.parametrize("stage", [0, 1])
def test_a_stage_gathers_after_each_pass_that_frees(stage: int, micro_batches: int, gathers: int) -> None:
    """Of real runs with two stages."""
    layout = Layout(dp="zero3", shard=2, pp=2, micro_batches=micro_batches)
    found = messages_of(Stage(SHAPE, layout, PRECISIONS["float32"], stage, 2), clips=True)
    units = 3  # two layers, and what is outside of layers
    assert [one.number for one in found if one.operator == "all_gather"] == [gathers * units]
    assert [one.number for one in found if one.operator == "reduce_scatter"] == [units]


def test_stages_send_their_part_of_the_sequence() -> None:
    """Of a real run: 8 messages of 32,768 bytes, half of what stages without sequence parallelism send."""
    layout = Layout(pp=2, tp=2, sequence_parallel=True, micro_batches=4)
    found = [(one.operator, one.number, one.bytes) for one in messages(layout, batch=16) if one.dimension == "pp"]
    assert found[0] == ("send_recv", 8, 262_144)


def test_sequence_parallelism_sends_as_much_as_the_reductions_that_it_replaces() -> None:
    """Korthikanti et al. (2022), section 4.2.2; but for the gradients of norms and of the embedding."""
    sent = {
        sequence: sum(one.sent_bytes for one in messages(Layout(tp=4, sequence_parallel=sequence)))
        for sequence in (False, True)
    }
    gathered = 131_072 * 3 // 4
    norms = round(18 * 256 * 2 * 3 / 4)
    assert sent[True] == sent[False] + gathered + norms


def test_a_ring_sends_what_busbw_counts() -> None:
    made = {"dimension": "dp", "ranks": 8, "number": 1, "bytes": 800, "formula": ""}
    sent = {name: Message(operator=name, **made).sent_bytes for name in ("all_reduce", "all_gather", "reduce_scatter")}  # type: ignore[arg-type]
    assert sent == {"all_reduce": 1400, "all_gather": 700, "reduce_scatter": 700}


def exposed_ns(layout: Layout, *, efficiency: float) -> tuple[float, float]:
    device = find_hardware(PRECISIONS["float32"], device=None, cluster="polaris")
    timed = time_step(
        Stage(SHAPE, layout, PRECISIONS["float32"]),
        device,
        Rates(efficiency=efficiency),
        messages=messages(layout),
        tokens=8 * 64 * layout.replicas,
    )
    assert timed.step is not None
    return timed.step.communication_ns, timed.step.exposed_ns


def test_gradients_hide_behind_a_long_backward_pass_only() -> None:
    layout = Layout(dp="zero2", shard=8)
    total, hidden = exposed_ns(layout, efficiency=0.0001)
    assert hidden < 0.5 * total
    total, exposed = exposed_ns(layout, efficiency=1)
    assert exposed > 0.7 * total


def test_tensor_parallelism_never_overlaps() -> None:
    total, exposed = exposed_ns(Layout(tp=2), efficiency=0.0001)
    assert exposed == total


def test_a_pipeline_waits_for_its_bubble() -> None:
    device = find_hardware(PRECISIONS["float32"], device="a100-40g", cluster=None)
    stage = Stage(SHAPE, Layout(pp=4, micro_batches=8), PRECISIONS["float32"])
    timed = time_step(stage, device, Rates(), messages=[], tokens=512)
    assert timed.step is not None
    assert timed.step.bubble_ns == pytest.approx(timed.step.compute_ns * 3 / 8)
