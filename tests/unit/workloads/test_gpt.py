import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from perfkit.errors import StoreError, UsageError
from perfkit_workloads.base import Workload
from perfkit_workloads.data.text import prepare_text
from perfkit_workloads.gpt import GPT, GPTConfig, rate_factor
from perfkit_workloads.gpt_model import INIT_STD, fused_adamw_works
from tests.unit.workloads.conftest import make


def of_preset(preset: str) -> Workload[GPTConfig]:
    values = {k: v for k, v in GPT.PRESETS[preset].items() if k != "batch_size"}
    return GPT(msgspec.convert(values, GPTConfig))


def batch_of(workload: Workload[Any], samples: int) -> dict[str, torch.Tensor]:
    arrays = workload.generate(workload.data_spec(0), 0, samples)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_sizes_of_gpt2(preset: str, parameters: int) -> None:
    with torch.device("meta"):
        model = of_preset(preset).build()
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_shakespeare_char_is_as_described() -> None:
    config = of_preset("shakespeare-char").config
    assert (config.layers, config.heads, config.width, config.block) == (4, 4, 128, 64)
    assert GPT.PRESETS["shakespeare-char"]["batch_size"] == 16


def test_flops_per_token_follow_the_formula() -> None:
    workload = of_preset("gpt2")
    with torch.device("meta"):
        model = workload.build()
    without_positions = 124_439_808 - 1024 * 768
    expected = 6 * without_positions + 12 * 12 * 12 * 64 * 1024
    assert workload.flops_per_token(model) == expected
    assert workload.tokens_per_sample == 1024


def test_loss_at_initialisation_is_that_of_uniform_guessing() -> None:
    torch.manual_seed(0)
    workload = make("gpt")
    loss = workload.loss(workload.build(), batch_of(workload, 32))
    assert float(loss.detach()) == pytest.approx(math.log(256), rel=0.01)


@pytest.mark.parametrize("changed", [1, 17, 63])
def test_a_token_changes_no_earlier_logits(changed: int) -> None:
    torch.manual_seed(0)
    workload = make("gpt")
    model = workload.build().eval()
    tokens = batch_of(workload, 2)["tokens"][:, :-1].long()
    other = tokens.clone()
    other[:, changed] = (other[:, changed] + 1) % 256
    with torch.no_grad():
        before, after = model(tokens), model(other)
    torch.testing.assert_close(after[:, :changed], before[:, :changed], rtol=0, atol=1e-6)
    assert not torch.allclose(after[:, changed], before[:, changed], atol=1e-4)
    if changed < 63:
        assert not torch.equal(after[:, changed + 1], before[:, changed + 1])


def test_initialisation() -> None:
    torch.manual_seed(0)
    model = make("gpt", layers=8, width=128).build()
    parameters = dict(model.named_parameters())
    assert parameters["tokens.weight"] is model.get_parameter("head.weight")
    for name, parameter in parameters.items():
        if name.endswith("residual.weight"):
            assert float(parameter.detach().std()) == pytest.approx(INIT_STD / 4, rel=0.05), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        elif parameter.dim() == 2:
            assert float(parameter.detach().std()) == pytest.approx(INIT_STD, rel=0.05), name
        else:
            assert bool((parameter == 1).all()), name


def test_without_biases_there_are_none() -> None:
    names = [name for name, _ in make("gpt", bias=False).build().named_parameters()]
    assert names
    assert not [name for name in names if name.endswith("bias")]


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    workload = make("gpt", dropout=0.5)
    model, tokens = workload.build(), batch_of(workload, 2)["tokens"][:, :-1].long()
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


def test_matrices_decay_and_vectors_do_not() -> None:
    workload = make("gpt", weight_decay=0.2)
    model = workload.build()
    made = workload.optimization(model, world_size=2, total_steps=10, device_type="cpu")
    decayed, plain = made.optimizer.param_groups
    assert type(made.optimizer) is torch.optim.AdamW
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.2, 0.0)
    assert {p.dim() for p in decayed["params"]} == {2}
    assert {p.dim() for p in plain["params"]} == {1}
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))
    assert decayed["fused"] is fused_adamw_works("cpu")
    assert made.clip_norm == 1.0


def test_fused_is_tried_and_not_guessed() -> None:
    tried = torch.nn.Parameter(torch.zeros(1))
    tried.grad = torch.zeros(1)
    try:
        torch.optim.AdamW([tried], fused=True).step()
    except RuntimeError:
        assert not fused_adamw_works("cpu")
    else:
        assert fused_adamw_works("cpu")


def test_clipping_can_be_turned_off() -> None:
    workload = make("gpt", clip_norm=0.0)
    made = workload.optimization(workload.build(), world_size=1, total_steps=1, device_type="cpu")
    assert made.clip_norm is None


def test_rate_rises_then_falls_along_a_cosine() -> None:
    rates = [rate_factor(s, warmup_steps=10, total_steps=111, final=0.1) for s in range(120)]
    assert rates[:10] == pytest.approx([(s + 1) / 11 for s in range(10)])
    assert rates[10] == 1.0
    assert rates[60] == pytest.approx(0.55)
    assert rates[110] == pytest.approx(0.1)
    assert rates[119] == pytest.approx(0.1), "it stays there"
    assert all(a >= b for a, b in pairwise(rates[10:]))


def test_scheduler_drives_both_groups() -> None:
    workload = make("gpt", learning_rate=1e-3, warmup_steps=3)
    made = workload.optimization(workload.build(), world_size=1, total_steps=9, device_type="cpu")
    assert made.scheduler is not None
    seen = []
    for _ in range(9):
        seen.append(made.optimizer.param_groups[0]["lr"])
        assert made.optimizer.param_groups[1]["lr"] == seen[-1]
        made.optimizer.step()
        made.scheduler.step()
    assert seen[0] == pytest.approx(0.25e-3)
    assert max(seen) == pytest.approx(1e-3)
    assert seen[-1] == pytest.approx(1e-4)


def test_the_synthetic_tokens_can_be_learned() -> None:
    torch.manual_seed(0)
    workload = make("gpt", vocab_size=16, learning_rate=5e-3, block=16, width=32)
    model = workload.build()
    made = workload.optimization(model, world_size=1, total_steps=60, device_type="cpu")
    batch = batch_of(workload, 64)
    for _ in range(60):
        made.optimizer.zero_grad()
        loss = workload.loss(model, batch)
        torch.autograd.backward(loss)
        made.optimizer.step()
    assert float(loss.detach()) < 0.9 * math.log(16)
    assert int(batch["tokens"].min()) >= 0
    assert int(batch["tokens"].max()) < 16


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(msgspec.ValidationError, match="width 64 is not divisible by heads 5"):
        msgspec.convert({"heads": 5}, GPTConfig)


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    prepare_text(tmp_path / "text.txt", tmp_path / "out", 0.1)
    return tmp_path / "out"


def test_windows_come_from_the_training_part_of_the_text(prepared: Path) -> None:
    workload = make("gpt", text=str(prepared), block=20, samples=3000)
    assert isinstance(workload, GPT)
    assert workload.text is not None
    assert workload.vocab_size == workload.text.vocab_size == 28
    spec = workload.data_spec(0)
    tokens = workload.generate(spec, 0, spec.samples)["tokens"]
    assert tokens.shape == (3000, 21)
    train = workload.text.decode(workload.text.train())
    windows = {workload.text.decode(row) for row in tokens}
    assert all(window in train for window in windows)
    assert len(windows) > 40
    np.testing.assert_array_equal(workload.generate(spec, 1100, 2300)["tokens"], tokens[1100:2300])


def test_fingerprint_depends_on_the_text(prepared: Path) -> None:
    (prepared.parent / "text.txt").write_text("another text " * 40)
    prepare_text(prepared.parent / "text.txt", prepared.parent / "other", 0.1)
    texts = [None, str(prepared), str(prepared.parent / "other")]
    assert len({make("gpt", text=t, vocab_size=28).data_spec(0).fingerprint for t in texts}) == 3


def test_a_text_shorter_than_a_window_is_refused(prepared: Path) -> None:
    make("gpt", text=str(prepared), block=1619)
    with pytest.raises(UsageError, match="1620 training characters"):
        make("gpt", text=str(prepared), block=1620)


def test_a_text_that_was_not_prepared_is_refused(prepared: Path) -> None:
    with pytest.raises(StoreError, match="perfkit data prepare"):
        make("gpt", text=str(prepared.parent / "text.txt"))
