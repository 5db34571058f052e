"""Start and end of one rank's part in the process group: device, backend, store, threads."""

import gc
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from perfkit.errors import LaunchEnvironmentError, PerfkitError
from perfkit.run.config import BackendName, DeviceKind, RunConfig
from perfkit.run.dist import DistInfo, detect, needs_mpi
from perfkit.run.layout import Layout, lay_out
from perfkit.run.rendezvous import ask_mpi, forget, import_mpi, open_store
from perfkit.run.team import PeerFailedError, Team

BACKENDS: Final[dict[str, BackendName]] = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo"}
"""Backend by kind of device."""

FLIGHT_RECORDER_ENTRIES: Final = 10_000
"""Collectives that torch's flight recorder keeps: a ring, large enough for one cycle."""

_ONE_RANK_VISIBILITY: Final = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
_SAME_ENVIRONMENT: Final = ("perfkit", "torchrun")
"""Launchers whose local ranks all see the same devices."""


_LAST_WORD_S: Final = 5.0
"""How long rank 0, whose process holds the store, waits for the others to read why nothing will start."""

T = TypeVar("T")


def locate() -> tuple[DistInfo, Any]:
    """Find this process's place among the ranks; the second value is `mpi4py.MPI`, or None.

    Raises:
        LaunchEnvironmentError: Variables of the launcher are missing or contradict each other or MPI.
    """
    mpi = import_mpi() if needs_mpi(os.environ) else None
    return detect(os.environ, ask_mpi(mpi)), mpi


@contextmanager
def process_group(config: RunConfig, info: DistInfo, mpi: Any) -> Iterator[tuple[Team, Layout]]:
    """Join the other ranks; leave them when the body ends without an error.

    After an error the group is left as it is: destroying it can wait for ranks that are gone.

    Raises:
        LaunchEnvironmentError: Devices, packages or other ranks are missing.
        UsageError: An option does not fit the number of ranks.
        PeerFailedError: Another rank has such an error.
    """
    trace_dir = Path(config.trace_dir)
    _prepare_environment(info)
    try:
        store = open_store(info, mpi, trace_dir, config.timeout_delta)
        device, backend = agree(store, info, lambda: _choose(config, info))
        team = _join(info, device, backend, store, config)
    finally:
        forget(info, trace_dir)
    yield team, lay_out(team, info, device, config.threads)
    team.close()
    gc.collect()  # DDP holds the group, and is part of a cycle
    dist.destroy_process_group()


def agree(store: Store, info: DistInfo, action: Callable[[], T]) -> T:
    """Run `action` on every rank; go on only if it succeeded on all. For the time before there is a process group.

    Raises:
        PerfkitError: This rank's own error.
        PeerFailedError: Another rank has one.
        LaunchEnvironmentError: A rank has not come this far within the store's timeout.
    """
    own: PerfkitError | None = None
    result: T | None = None
    try:
        result = action()
    except PerfkitError as error:
        own = error
    store.set(f"ready/{info.rank}", "failed" if own else "ready")
    failed = _first_failed(store, info)
    if failed == info.rank and own is not None:
        raise own
    if failed is not None:
        raise PeerFailedError(f"rank {failed} failed")
    return result  # type: ignore[return-value]  # nobody failed


def _first_failed(store: Store, info: DistInfo) -> int | None:
    """Return the first rank that is not ready: rank 0 collects, the others ask it."""
    if info.rank != 0:
        verdict = _get(store, "verdict", info, 0)
        store.add("heard", 1)
        return int(verdict) if verdict else None
    states = [_get(store, f"ready/{rank}", info, rank) for rank in range(info.world_size)]
    failed = states.index("failed") if "failed" in states else None
    store.set("verdict", "" if failed is None else str(failed))
    if failed is not None:
        deadline = time.monotonic() + _LAST_WORD_S
        while store.add("heard", 0) < info.world_size - 1 and time.monotonic() < deadline:
            time.sleep(0.01)
    return failed


def _get(store: Store, key: str, info: DistInfo, awaited: int) -> str:
    try:
        return bytes(store.get(key)).decode()
    except RuntimeError as error:
        raise LaunchEnvironmentError(
            f"rank {awaited} of {info.world_size} has not started ({first_line(error)}): "
            "see what became of it, or raise --timeout"
        ) from error


def _choose(config: RunConfig, info: DistInfo) -> tuple[torch.device, str]:
    config.check_world(info.world_size)
    device = choose_device(config.device, info)
    return device, choose_backend(config.backend, device)


def choose_device(kind: DeviceKind, info: DistInfo) -> torch.device:
    """Return the device of this rank: one a local rank.

    Raises:
        LaunchEnvironmentError: There is no such device, or fewer of them than local ranks.
    """
    found = _available() if kind == "auto" else kind
    if found == "cpu":
        return torch.device("cpu")
    module = torch.get_device_module(found)
    count = module.device_count() if module.is_available() else 0
    if count == 0:
        raise LaunchEnvironmentError(
            f"--device {kind}: torch {torch.__version__} sees no {found} device on "
            f"{socket.gethostname()}: use --device cpu, or a torch built for it"
        )
    own = count == 1 and info.launcher not in _SAME_ENVIRONMENT and _visibility() is not None
    if count < info.local_world_size and not own:
        raise LaunchEnvironmentError(
            f"{info.local_world_size} ranks on {socket.gethostname()} but {count} {found} device(s)"
            f"{f' ({_visibility()})' if _visibility() else ''}: start {count} rank(s) a node, "
            "or use --device cpu"
        )
    device = torch.device(found, 0 if own else info.local_rank)
    module.set_device(device)
    return device


def _available() -> str:
    for kind in ("cuda", "xpu"):
        if torch.get_device_module(kind).is_available():
            return kind
    return "cpu"


def _visibility() -> str | None:
    """Return the variable that restricts the devices this process sees."""
    for name in _ONE_RANK_VISIBILITY:
        if os.environ.get(name):
            return f"{name}={os.environ[name]}"
    return None


def choose_backend(name: BackendName, device: torch.device) -> str:
    """Return the communication backend.

    Raises:
        LaunchEnvironmentError: This torch does not have it, or it cannot move data of the device.
    """
    backend = BACKENDS[device.type] if name == "auto" else name
    if not dist.is_available() or not dist.is_backend_available(backend):
        raise LaunchEnvironmentError(
            f"torch {torch.__version__} was built without the backend {backend}: "
            f"choose another --backend, or install a torch that has it"
        )
    if backend in ("nccl", "xccl") and device.type == "cpu":
        raise LaunchEnvironmentError(f"--backend {backend} needs a device: --device cpu uses gloo")
    return backend


def _prepare_environment(info: DistInfo) -> None:
    """Set what torch reads from the environment once, unless the user has set it."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(FLIGHT_RECORDER_ENTRIES))
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if info.single_host and loopback is not None:
        # gloo looks the host's own name up otherwise, which need not lead anywhere.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def _join(info: DistInfo, device: torch.device, backend: str, store: Store, config: RunConfig) -> Team:
    try:
        dist.init_process_group(
            backend,
            store=PrefixStore("group", store),
            rank=info.rank,
            world_size=info.world_size,
            timeout=config.timeout_delta,
            device_id=device if backend == "nccl" else None,
        )
        return Team(config.timeout_delta)
    except RuntimeError as error:
        raise LaunchEnvironmentError(
            f"cannot join the other {info.world_size - 1} ranks within --timeout {config.timeout}: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
