"""Parts of parameters that are made when asked for are those that torch makes for every rank."""

import msgspec
import pytest
import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param

from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.traced import fake_steps
from perfkit.tools.plan.traced.fake_steps import trace_steps
from perfkit.tools.plan.traced.launch import TraceRequest

NAME = "_chunk_with_empty"
DIVIDES = getattr(_fsdp_param, NAME)


@pytest.mark.parametrize("shape", [(8, 3), (7, 2), (1,), (5, 4, 2)])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_parts_are_torchs(shape: tuple[int, ...], count: int) -> None:
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    parts, torchs = fake_steps.Parts(tensor, count, 0), DIVIDES(tensor, count, dim=0)
    assert len(parts) == len(torchs)
    for mine, own in zip((parts[place] for place in range(count)), torchs, strict=True):
        assert (mine.shape, mine.stride(), mine.tolist()) == (own.shape, own.stride(), own.tolist())
    with pytest.raises(IndexError):
        parts[count]


@pytest.mark.slow
def test_a_step_needs_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On three ranks, which divide few of its parameters evenly."""
    gpt: dict[str, int | bool | float] = {"layers": 2, "width": 16, "heads": 2, "block": 8, "vocab_size": 31}
    request = TraceRequest(
        layouts=[Layout(dp="zero3", shard=3)],
        precision="float32",
        samples=[2],
        stages=[0],
        gpt=gpt | {"bias": True, "dropout": 0.0},
    )
    (quick,), _ = trace_steps(request)
    assert getattr(_fsdp_param, NAME) is DIVIDES
    monkeypatch.setattr(fake_steps, "_DIVIDES", "not_in_this_torch")
    (torchs,), _ = trace_steps(request)
    assert msgspec.structs.replace(quick, seconds=0) == msgspec.structs.replace(torchs, seconds=0)
