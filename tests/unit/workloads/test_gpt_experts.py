import math

import pytest
import torch
from torch.nn import functional

from perfkit.record.training.experts import expert_load
from perfkit_workloads.gpt import GPTConfig
from perfkit_workloads.gpt_experts import MixtureOfExperts
from perfkit_workloads.gpt_model import Block
from tests.unit.workloads.conftest import make


def mixture(experts: int, top_k: int) -> MixtureOfExperts:
    torch.manual_seed(0)
    made = MixtureOfExperts(GPTConfig(experts=experts, top_k=top_k, width=8, heads=2))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def by_token(made: MixtureOfExperts, x: torch.Tensor) -> torch.Tensor:
    """Return what each token's experts give, one token after the other."""
    expand, residual = made.experts.expand.each(), made.experts.residual.each()
    outputs = []
    for token in x.flatten(0, 1):
        scores = made.router(token)
        chosen = scores.argsort(descending=True)[: made.top_k]
        weights = scores[chosen].softmax(0)
        hidden = [functional.gelu(functional.linear(token, *expand[e]), approximate="tanh") for e in chosen]
        parts = [functional.linear(h, *residual[e]) for h, e in zip(hidden, chosen, strict=True)]
        outputs.append(sum(w * part for w, part in zip(weights, parts, strict=True)))
    return torch.stack(outputs).view_as(x)


@pytest.mark.parametrize(("experts", "top_k"), [(1, 1), (4, 2), (6, 6)])
def test_each_token_gets_the_weighted_sum_of_its_experts(experts: int, top_k: int) -> None:
    made, x = mixture(experts, top_k), torch.randn(3, 5, 8)
    torch.testing.assert_close(made(x), by_token(made, x))
    assert made.routed.sum() == 3 * 5 * top_k


def test_an_expert_without_tokens_has_a_gradient_of_zero() -> None:
    made = mixture(4, 1)
    torch.nn.init.zeros_(made.router.weight)
    with torch.no_grad():
        made.router.weight[2] = 1.0
    made(torch.ones(1, 3, 8)).sum().backward()
    assert made.routed.tolist() == [0, 0, 3, 0]
    gradient = made.experts.expand.weight.grad
    assert gradient is not None
    assert [bool(part.any()) for part in gradient] == [False, False, True, False]


def test_a_rank_keeps_its_part_of_the_experts() -> None:
    layer = mixture(4, 1).experts.expand
    weight, bias = layer.weight.detach().clone(), layer.bias
    kept = layer.keep(1, 2)
    assert [*layer.parameters()] == kept
    assert bias is not None
    for part, whole in zip(kept, (weight, bias), strict=True):
        torch.testing.assert_close(part, whole[2:])


def test_a_model_of_experts() -> None:
    workload = make("gpt", experts=4, top_k=2, layers=2)
    torch.manual_seed(0)
    model = workload.build()
    layers = workload.expert_layers(model)  # type: ignore[attr-defined]
    assert len(layers) == 2
    assert make("gpt").expert_layers(make("gpt").build()) == []  # type: ignore[attr-defined]
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    dense = make("gpt", layers=2).build()
    mlp = sum(p.numel() for block in dense.modules() if isinstance(block, Block) for p in block.mlp.parameters())
    assert experts == 4 * mlp
    # Two of four experts compute for each token, and the router.
    more = 6 * (mlp + 2 * 4 * 64)
    without = make("gpt", layers=2).flops_per_token(dense)
    assert without is not None
    assert workload.flops_per_token(model) == without + more
    made = workload.optimization(model, world_size=1, total_steps=1, device_type="cpu")
    undecayed = {id(parameter) for parameter in made.optimizer.param_groups[1]["params"]}
    for name, parameter in model.named_parameters():
        assert (id(parameter) in undecayed) == (name.endswith("bias") or "norm" in name), name
    tokens = torch.randint(0, 256, (2, 65))
    loss = workload.loss(model, {"tokens": tokens})
    assert float(loss.detach()) == pytest.approx(math.log(256), rel=0.02)


def test_the_load_of_experts() -> None:
    load = expert_load(3, [(0, [6.0, 2.0]), (1, [1.0, 3.0]), (0, [2.0, 2.0]), (1, [0.0, 0.0])])
    assert (load.layer, load.expert_tokens, load.rank_tokens) == (3, [8.0, 4.0, 1.0, 3.0], [8.0, 4.0, 4.0, 0.0])
