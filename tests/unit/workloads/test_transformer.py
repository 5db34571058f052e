import math
import warnings

import msgspec
import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from perfkit_workloads.transformer import Transformer, TransformerConfig
from tests.unit.workloads.conftest import make


def test_default_is_the_default_transformer() -> None:
    workload = Transformer(TransformerConfig())
    with torch.device("meta"):
        model = workload.build()
    assert sum(p.numel() for p in model.parameters()) == 44_140_544
    fields = {f.name: ((workload.config.samples, *f.shape), f.dtype) for f in workload.data_spec(0).fields}
    assert fields == {
        "source": ((2048, 1, 512), "float32"),
        "target": ((2048, 20, 512), "float32"),
    }


@pytest.mark.parametrize("lengths", [(1, 20), (16, 4)])
def test_flops_are_those_that_torch_counts(lengths: tuple[int, int]) -> None:
    source, target = lengths
    config = {"d_model": 64, "feedforward": 256, "dropout": 0.0}
    workload = make("transformer", source_length=source, target_length=target, **config)
    model = workload.build()
    batch = {
        name: torch.rand(2, length, 64, requires_grad=True) for name, length in (("source", source), ("target", target))
    }
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        torch.autograd.backward(workload.loss(model, batch))
    per_token = workload.flops_per_token(model)
    assert per_token is not None
    counted = per_token * target * 2
    # Biases and norms, which torch does not count, are parameters as well: 2 % at this width.
    assert counter.get_total_flops() < counted < 1.03 * counter.get_total_flops()


def test_samples_are_uniform_and_depend_on_the_seed() -> None:
    workload = make("transformer", samples=64)
    first, second = (workload.generate(workload.data_spec(seed), 0, 64) for seed in (0, 1))
    for name, values in first.items():
        assert values.min() >= 0
        assert values.max() < 1
        assert abs(float(values.mean()) - 0.5) < 0.01
        assert not np.array_equal(values, second[name])
    assert not np.array_equal(first["source"][:, 0], first["target"][:, 0])


@pytest.mark.parametrize("name", ["transformer", "gpt"])
def test_every_split_into_ranges_gives_the_same_samples(name: str) -> None:
    workload = make(name, samples=2500)
    if name == "transformer":
        workload = make(name, samples=300, d_model=512)
    spec = workload.data_spec(7)
    assert spec.samples > 2 * spec.block_samples, "the test needs several blocks"
    whole = workload.generate(spec, 0, spec.samples)
    for step in (1 + spec.samples // 7, spec.block_samples, spec.samples):
        ranges = [(a, min(a + step, spec.samples)) for a in range(0, spec.samples, step)]
        parts = [workload.generate(spec, *r) for r in ranges]
        for field in spec.fields:
            joined = np.concatenate([part[field.name] for part in parts])
            assert joined.dtype == field.dtype
            np.testing.assert_array_equal(joined, whole[field.name])


def test_loss_is_the_cross_entropy_over_features() -> None:
    workload = make("transformer", samples=4, d_model=16, heads=2, target_length=3)
    arrays = workload.generate(workload.data_spec(0), 0, 4)
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    model = workload.build().eval()
    log_p = torch.log_softmax(model(batch["source"], batch["target"]), dim=-1)
    expected = -(batch["target"] * log_p).sum(dim=-1).mean()
    torch.testing.assert_close(workload.loss(model, batch), expected)
    assert float(expected.detach()) == pytest.approx(8 * math.log(16), rel=0.5)


def test_adam_learns_and_its_rate_grows_with_the_ranks() -> None:
    torch.manual_seed(0)
    workload = make("transformer", samples=8, d_model=16, heads=2, dropout=0.0, feedforward=64)
    arrays = workload.generate(workload.data_spec(0), 0, 8)
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    model = workload.build()
    made = workload.optimization(model, world_size=4, total_steps=5, device_type="cpu")
    assert type(made.optimizer) is torch.optim.Adam
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(0.004)
    assert made.scheduler is None
    assert made.clip_norm is None
    losses = []
    for _ in range(5):
        made.optimizer.zero_grad()
        loss = workload.loss(model, batch)
        torch.autograd.backward(loss)
        made.optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert workload.tokens_per_sample == workload.config.target_length


def test_heads_must_divide_the_features() -> None:
    with pytest.raises(msgspec.ValidationError, match="d_model 512 is not divisible by heads 7"):
        msgspec.convert({"heads": 7}, TransformerConfig)


def test_an_odd_number_of_heads_builds_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make("transformer", d_model=9, heads=3, encoder_layers=1, decoder_layers=1).build()
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
