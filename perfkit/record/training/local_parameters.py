"""Parameters that are parts of distributed tensors, as plain tensors: DDP and optimizers take no mixture of both."""

from typing import Final

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import parametrize


class Part(nn.Module):
    """Turns this rank's part into the distributed tensor that the forward pass computes with."""

    def __init__(self, whole: DTensor) -> None:
        super().__init__()
        self.device_mesh: Final = whole.device_mesh
        self.placements: Final = whole.placements
        self._shape = whole.shape
        self._stride = whole.stride()

    def forward(self, part: Tensor) -> DTensor:
        """Return the distributed tensor; its gradient is that of the part, complete."""
        whole: DTensor = DTensor.from_local(
            part, self.device_mesh, self.placements, run_check=False, shape=self._shape, stride=self._stride
        )
        return whole


def localize(model: nn.Module) -> dict[nn.Parameter, Part]:
    """Replace each parameter of `model` that is a DTensor by this rank's part of it, in place.

    Returns:
        The new parameters, and what each is part of. Modules that shared a parameter share its part.
    """
    parts: dict[nn.Parameter, tuple[nn.Parameter, Part]] = {}
    for module in [*model.modules()]:
        for name, parameter in [*module.named_parameters(recurse=False)]:
            whole = parameter.data
            if not isinstance(whole, DTensor):
                continue
            if parameter not in parts:
                parts[parameter] = nn.Parameter(whole.to_local().clone()), Part(whole)
            own, part = parts[parameter]
            module.register_parameter(name, own)
            parametrize.register_parametrization(module, name, part, unsafe=True)
    return dict(parts.values())
