"""What torch can do here, tried in a separate process: devices, backends, profiler."""

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def print_torch() -> None:
    """Print what torch finds, as JSON. The argument is the local rank, whose device is tried."""
    import torch

    from perfkit.accelerators import accelerators

    local_rank = int(sys.argv[1])
    kind = _device_type()
    count = torch.get_device_module(kind).device_count() if kind else 0
    device = torch.device(kind, local_rank % count) if kind and count else torch.device("cpu")
    answer = {
        "version": torch.__version__,
        "toolkit": {row.toolkit: getattr(torch.version, row.toolkit, None) for row in accelerators() if row.toolkit},
        "device": None if device.type == "cpu" else str(device),
        "devices": [_tried(partial(_name, str(kind), index)) for index in range(count)],
        "backends": {name: _tried(partial(_all_reduce, name, on)) for name, on in _backends(device)},
        "profiler": _tried(partial(_profile, device)),
    }
    print(json.dumps(answer))  # noqa: T201 — the answer


def _device_type() -> str | None:
    """Return the accelerator that `--device auto` would take."""
    import torch

    from perfkit.accelerators import device_types

    for kind in device_types():
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return kind
    return None


def _name(kind: str, index: int) -> str:
    import torch

    properties = torch.get_device_module(kind).get_device_properties(index)
    return f"{properties.name}, {properties.total_memory / 1e9:.0f} GB"


def _backends(device: Any) -> list[tuple[str, Any]]:
    """Return the backends that this torch has, each with the device that it would be tried on."""
    import torch
    import torch.distributed as dist

    from perfkit.accelerators import accelerators

    if not dist.is_available():
        return []
    pairs = [("gloo", torch.device("cpu"))]
    names = {row.backend for row in accelerators() if row.device == device.type and row.backend}
    return [*pairs, *((name, device) for name in sorted(names) if dist.is_backend_available(name))]


def _all_reduce(backend: str, device: Any) -> str:
    """Reduce one number in a group of one rank, which opens the backend's network interface; return its version."""
    import torch
    import torch.distributed as dist
    from torch.distributed import HashStore  # type: ignore[attr-defined]

    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(1, device=device))
    finally:
        dist.destroy_process_group()
    if backend == "nccl":
        version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        return f"{'.'.join(map(str, version))}, "
    return ""


def _profile(device: Any) -> dict[str, int]:
    """Profile a matrix product, and return the number of events by category."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from perfkit.accelerators import accelerators

    kinds = {row.activity for row in accelerators() if row.device == device.type}
    activities = [ProfilerActivity.CPU, *(getattr(ProfilerActivity, name) for name in kinds)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        with profile(activities=activities) as session:
            torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
            if device.type != "cpu":
                torch.get_device_module(device.type).synchronize()
        session.export_chrome_trace(str(path))
        categories = [event.get("cat") for event in json.loads(path.read_bytes())["traceEvents"]]
    return {name: categories.count(name) for name in ("cpu_op", "kernel")}


def _tried(what: Callable[[], Any]) -> dict[str, Any]:
    """Return the result, or why there is none."""
    try:
        return {"result": what()}
    # Drivers and backends raise what they like; all of it is the answer.
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
