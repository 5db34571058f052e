"""Made traces of operators with recorded shapes, on a device and on the CPU."""

from typing import Any

from tests.support.traces.trace_builder import Micros, TraceBuilder

GPU = "NVIDIA A100-SXM4-40GB"


def inputs(*shapes: list[Any], dtype: str = "float", concrete: list[str] | None = None) -> dict[str, Any]:
    """Return the arguments of an operator as the profiler records them; an empty shape is a scalar's."""
    types = ["Scalar" if not shape else "TensorList" if isinstance(shape[0], list) else dtype for shape in shapes]
    found: dict[str, Any] = {"Input Dims": list(shapes), "Input type": types}
    return found if concrete is None else found | {"Concrete Inputs": concrete}


def gpu_trace(*, names: tuple[str, ...] = (GPU,)) -> TraceBuilder:
    """Return the beginning of a trace whose header names its devices."""
    properties = [{"id": place, "name": name, "totalGlobalMem": 1} for place, name in enumerate(names)]
    return TraceBuilder(backend=None).header(deviceProperties=properties)


class Launches:
    """Adds operators that launch one kernel each, one after the other, to a trace."""

    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self._host, self._device, self._correlation = 1, 10, 1

    def call(self, name: str, args: dict[str, Any] | None, us: Micros, kernel: str = "kernel") -> None:
        """Add an operator of 5 us, its launch, and a kernel of `us`."""
        self.builder.op(name, self._host, 5, args=args)
        self.launch(self._host + 1, us, kernel)
        self._host += 6

    def launch(self, at: Micros, us: Micros, kernel: str = "kernel") -> None:
        """Add a launch call and its kernel."""
        self.builder.launch(self._correlation, at, 1).kernel(kernel, self._device, us, self._correlation)
        self._correlation += 1
        self._device += int(us)
