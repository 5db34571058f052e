"""Following the calls of modules makes torch compile nothing again: a recorded step would be a compilation."""

from typing import Any

import pytest
import torch
from torch import nn

from perfkit.record.script.hooks.pass_hooks import Annotations, ForwardPasses


class Net(nn.Module):
    """Its forward pass is the script's own, which torch compiles; those of torch's modules it does not begin at."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(value)
        return result


@pytest.mark.slow  # loads the compiler: 5 s of CPU
@pytest.mark.parametrize(
    ("make", "in_place"),
    [(Net, True), (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), False)],
    ids=["own by Module.compile", "torch's by torch.compile"],
)
def test_a_compiled_module_is_not_compiled_again(make: Any, in_place: bool) -> None:
    import torch._dynamo

    compiled: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    net: nn.Module = make()
    ended: list[Any] = []
    errors: list[Exception] = []
    annotations = Annotations()
    annotations.enable(True)
    calls = ForwardPasses(None, annotations, ended.append, errors.append).calls
    if in_place:
        net.compile(backend=backend)
    model = net if in_place else torch.compile(net, backend=backend)
    model(torch.randn(2, 4))
    before = len(compiled)
    frames = torch._dynamo.utils.counters["frames"]["total"]
    calls.install()
    try:
        model(torch.randn(2, 4))
        model(torch.randn(2, 4))
    finally:
        calls.remove()
    assert len(compiled) == before
    assert torch._dynamo.utils.counters["frames"]["total"] == frames
    assert len(ended) == 2
    assert not errors
