"""A stand-in for torch, first on PYTHONPATH in tests of how a script starts and ends.

Importing torch and taking one optimizer step costs several seconds per process. Tests of exit codes, signals, output,
arguments and the shared run folder check perfkit's script runner, not torch, so they use this package. It has what
`perfkit run SCRIPT` and tests/integration/scripts/train.py touch on a CPU without a process group, and nothing else:
optimizers that call their step hooks, tensors that compute nothing, and a profiler that writes the annotations and one
operator per step in torch's own trace format. Every kind of behaviour is also tested with the real torch.
"""

import json
import os
import sys
import time
from types import ModuleType
from typing import Any

__version__ = "0+stub"


def _module(name: str, **names: Any) -> ModuleType:
    module = ModuleType(f"torch.{name}")
    vars(module).update(names)
    sys.modules[module.__name__] = module
    return module


class Tensor:
    """Computes nothing: every method returns the tensor."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = device("cpu")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self

    def backward(self) -> None:
        autograd.backward(self)


class device:  # noqa: N801
    """The CPU."""

    def __init__(self, name: str) -> None:
        self.type, self.index = name, None

    def __str__(self) -> str:
        return self.type


class _Layer:
    """A layer or model: a call returns its input."""

    def train(self, _: bool = True) -> "_Layer":
        return self

    def __init__(self, *_: Any) -> None: ...

    def __call__(self, inputs: Tensor) -> Tensor:
        return inputs

    def to(self, _: str) -> "_Layer":
        return self

    def parameters(self) -> list[Tensor]:
        return [Tensor()]


# ---- optimizers ----------------------------------------------------------------------------------------------------

_hooks: list[Any] = []


class _Optimizer:
    def __init__(self, parameters: list[Tensor], **_: float) -> None:
        self.param_groups = [{"params": list(parameters)}]

    def step(self) -> None:
        for hook in _hooks:
            hook(self, (), {})

    def zero_grad(self) -> None: ...


# ---- the profiler --------------------------------------------------------------------------------------------------

_ranges: list[dict[str, Any]] = []


def _event(category: str, name: str, begin_ns: int, end_ns: int) -> dict[str, Any]:
    times = {"ts": begin_ns / 1e3, "dur": (end_ns - begin_ns) / 1e3}
    return {"ph": "X", "cat": category, "name": name, "pid": os.getpid(), "tid": os.getpid(), **times, "args": {}}


class _RecordFunction:
    def __init__(self, name: str) -> None:
        self._name, self._begin_ns = name, 0

    def __enter__(self) -> None:
        self._begin_ns = time.monotonic_ns()

    def __exit__(self, *_: object) -> None:
        end_ns = time.monotonic_ns()
        _ranges.append(_event("user_annotation", self._name, self._begin_ns, end_ns))
        middle_ns = (self._begin_ns + end_ns) // 2
        _ranges.append(_event("cpu_op", "aten::mm", self._begin_ns, middle_ns))


class _Profile:
    def __init__(self, **_: Any) -> None:
        self._header: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []

    def prepare_trace(self) -> None: ...

    def start_trace(self) -> None:
        _ranges.clear()

    def stop_trace(self) -> None:
        self._events = list(_ranges)

    def add_metadata_json(self, key: str, value: str) -> None:
        self._header[key] = value

    def export_chrome_trace(self, path: str) -> None:
        head = "".join(f'"{key}": {value},\n' for key, value in self._header.items())
        base = f'"baseTimeNanoseconds": {time.time_ns() - time.monotonic_ns()}'
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(f'{{"schemaVersion": 1,\n{head}{base},\n"traceEvents": {json.dumps(self._events)},\n')
            stream.write('"traceName": "stub"\n}\n')

    def key_averages(self, **_: Any) -> Any:
        return type("Rows", (list,), {"table": lambda *_, **__: "no operators\n"})()


# ---- the package's modules -----------------------------------------------------------------------------------------

_kinds = {name: type(name, (_Optimizer,), {}) for name in ("SGD", "Adam")}
_post = _module(
    "optim.optimizer",
    register_optimizer_step_pre_hook=lambda _: None,
    register_optimizer_step_post_hook=_hooks.append,
)
optim = _module("optim", Optimizer=_Optimizer, optimizer=_post, **_kinds)
nn = _module("nn", Module=_Layer, Linear=_Layer, ReLU=_Layer, Sequential=_Layer, Parameter=Tensor)
_activity = type("ProfilerActivity", (), {"CPU": "cpu", "CUDA": "cuda", "XPU": "xpu"})
profiler = _module("profiler", profile=_Profile, ProfilerActivity=_activity, record_function=_RecordFunction)
autograd = _module(
    "autograd",
    backward=lambda _: None,
    grad=lambda *_: (),
    profiler=_module("autograd.profiler", profile=type("profile", (_Profile,), {})),
)
_store = type("Store", (), {"port": 0, "__init__": lambda *_, **__: None})
distributed = _module(
    "distributed",
    Store=_store,
    PrefixStore=_store,
    TCPStore=_store,
    DistStoreError=RuntimeError,
    is_available=lambda: False,
)
version = _module("version")
_C = _module("_C", _current_graph_task_id=lambda: -1)
amp = _module("amp", GradScaler=type("GradScaler", (), {"step": lambda *_: None}))
compiler = _module("compiler", is_compiling=lambda: False)
serialization = _module("serialization")
float32 = "torch.float32"
randn = zeros = Tensor


def save(*_: Any) -> None: ...


def get_num_threads() -> int:
    return 1


def set_num_threads(_: int) -> None: ...


def manual_seed(_: int) -> None: ...
