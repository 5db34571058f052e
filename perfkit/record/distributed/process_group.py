"""Join and leave the process group: device, backend, store and environment of one rank."""

import gc
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from perfkit.accelerators import accelerators, device_backends, device_types, of_device
from perfkit.errors import LaunchEnvironmentError
from perfkit.options.run import RunConfig
from perfkit.record.distributed.launcher_env import MpiView, RankInfo, detect_rank, needs_mpi
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.rendezvous import open_store, remove_endpoint_files
from perfkit.record.distributed.store_barrier import StoreBarrier
from perfkit.record.distributed.topology import Topology, discover_topology
from perfkit.record.distributed.torch_environment import enlarge_flight_recorder, request_log

_SAME_ENVIRONMENT: Final = ("perfkit", "torchrun")
"""Launchers under which all local ranks see the same devices."""


def locate() -> tuple[RankInfo, Any]:
    """Return this process's rank, and `mpi4py.MPI` or None.

    Raises:
        LaunchEnvironmentError: Variables of the launcher are missing, or contradict each other or MPI.
    """
    mpi: Any = None
    if needs_mpi(os.environ):
        with suppress(ImportError, RuntimeError):  # it is not installed, or finds no MPI library
            from mpi4py import MPI as mpi  # noqa: N811
    seen = None if mpi is None else MpiView(mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size)
    return detect_rank(os.environ, seen), mpi


@contextmanager
def process_group(config: RunConfig, info: RankInfo, mpi: Any) -> Iterator[tuple[ProcessRankGroup, Topology]]:
    """Join the other ranks, and leave the group when the body ends without an error.

    After an error the group is not destroyed: that can wait for ranks that are gone.

    Raises:
        LaunchEnvironmentError: Devices, packages or other ranks are missing.
        UsageError: An option does not fit the number of ranks.
        PeerFailedError: Another rank has such an error.
        RunError: A rank did not join, or is gone.
    """
    trace_dir = Path(config.trace_dir)
    _prepare_environment(info, config)
    try:
        store = open_store(info, mpi, trace_dir, config.timeout_delta)
        barrier = StoreBarrier(store, info.rank, info.world_size, config.timeout_delta)
        device, backend = barrier.run_on_all(lambda: _choose(config, info, store))
        ranks = _join(info, device, backend, store, config, barrier)
    finally:
        remove_endpoint_files(info, trace_dir)
    try:
        yield ranks, discover_topology(ranks, info, device, config.threads)
    except RuntimeError as error:
        explained = barrier.explain_collective_error(error, ranks.current_activity)
        if explained is None:
            raise
        raise explained from error
    ranks.close()
    gc.collect()  # DDP refers to the group and is part of a reference cycle
    dist.destroy_process_group()


def _choose(config: RunConfig, info: RankInfo, store: Store) -> tuple[torch.device, str]:
    config.check_world(info.world_size)
    # Ranks that share a device share its time: timings mean nothing, so this has to be requested.
    shared = config.backend == "gloo" and config.device not in ("auto", "cpu")
    device = choose_device(config.device, info, shared)
    backend = choose_backend(config.backend, device)
    config.check_place(device.type, backend)
    if config.nccl_debug is not None:
        request_log(config.nccl_debug, Path(config.trace_dir), info.rank)
    if device.type != "cpu" and not shared:
        _claim(device, info, store)
    return device, backend


def _claim(device: torch.device, info: RankInfo, store: Store) -> None:
    """Refuse a device that another rank uses, as happens if all ranks inherit one CUDA_VISIBLE_DEVICES."""
    # Unique on its host as far as known.
    own = f"{_visibility()} {device}"
    if torch.version.cuda is not None and device.type == "cuda":
        own = str(torch.cuda.get_device_properties(device).uuid)
    key = f"device/{socket.gethostname()}/{own}"
    holder = bytes(store.compare_set(key, "", str(info.rank))).decode()
    if holder != str(info.rank):
        raise LaunchEnvironmentError(
            f"rank {info.rank} and rank {holder} use the same device ({device}, {_visibility() or 'no variable'}) on "
            f"{socket.gethostname()}: make one device visible to each rank, or all to all; to share one: "
            f"--device {device.type} --backend gloo"
        )


def choose_device(kind: str, info: RankInfo, shared: bool = False) -> torch.device:
    """Return the device of this rank, one per local rank.

    Args:
        shared: Whether ranks may share a device if there are too few.

    Raises:
        LaunchEnvironmentError: There is no such device, or there are fewer than local ranks.
    """
    found = default_kind() if kind == "auto" else kind
    if found == "cpu":
        return torch.device("cpu")
    count = torch.get_device_module(found).device_count() if is_available(found) else 0
    if count == 0:
        raise LaunchEnvironmentError(
            f"--device {kind}: torch {torch.__version__} sees no {found} device on "
            f"{socket.gethostname()}: use --device cpu, or a torch built for it"
        )
    own = count == 1 and info.launcher not in _SAME_ENVIRONMENT and _visibility() is not None
    if count < info.local_world_size and not own and not shared:
        raise LaunchEnvironmentError(
            f"{info.local_world_size} ranks on {socket.gethostname()} but {count} {found} device(s)"
            f"{f' ({_visibility()})' if _visibility() else ''}: start {count} rank(s) per node, "
            "or use --device cpu"
        )
    device = torch.device(found, 0 if own else info.local_rank % count)
    torch.get_device_module(found).set_device(device)
    return device


def is_available(kind: str) -> bool:
    """Return whether this torch has support for a type of device, and there is at least one."""
    try:
        return bool(torch.get_device_module(kind).is_available())
    except (RuntimeError, AttributeError):  # torch was built without it, or the vendor's package is not installed
        return False


def default_kind() -> str:
    return next(filter(is_available, device_types()), "cpu")


def _visibility() -> str | None:
    """Return the variable that restricts the visible devices, with its value; None if none is set."""
    for name in (name for row in accelerators() for name in row.visibility):
        if os.environ.get(name):
            return f"{name}={os.environ[name]}"
    return None


def choose_backend(name: str, device: torch.device) -> str:
    """Return the communication backend.

    Raises:
        LaunchEnvironmentError: This torch lacks it, or it cannot move data of the device.
    """
    backend = default_backend(device.type) if name == "auto" else name
    if not dist.is_available() or not dist.is_backend_available(backend):
        raise LaunchEnvironmentError(
            f"torch {torch.__version__} was built without the backend {backend}: "
            f"choose another --backend, or install a torch that has it"
        )
    if backend in device_backends() and device.type == "cpu":
        raise LaunchEnvironmentError(f"--backend {backend} needs a device: --device cpu uses gloo")
    return backend


def default_backend(kind: str) -> str:
    """Return the backend that moves the data of a type of device.

    Raises:
        LaunchEnvironmentError: torch has none for it by default.
    """
    backend = "gloo" if kind == "cpu" else of_device(kind).backend
    if backend is None:
        raise LaunchEnvironmentError(f"no communication backend is known for {kind} devices: name one with --backend")
    return backend


def _prepare_environment(info: RankInfo, config: RunConfig) -> None:
    """Set the variables that torch reads once, unless the user has set them."""
    if config.plan is not None or config.capture_rules.conditions:
        enlarge_flight_recorder()
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if info.single_host and loopback is not None:
        # Otherwise gloo resolves the host's own name, which may not work.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def _join(
    info: RankInfo, device: torch.device, backend: str, store: Store, config: RunConfig, barrier: StoreBarrier
) -> ProcessRankGroup:
    # MPI assigns the ranks itself.
    own: dict[str, Any] = {"store": PrefixStore("group", store), "rank": info.rank, "world_size": info.world_size}
    try:
        dist.init_process_group(
            backend,
            timeout=config.timeout_delta,
            device_id=device if backend in device_backends() else None,
            **({} if backend == "mpi" else own),
        )
        if (dist.get_rank(), dist.get_world_size()) != (info.rank, info.world_size):
            raise LaunchEnvironmentError(
                f"rank {info.rank} of {info.world_size} by {info.launcher} is rank {dist.get_rank()} of "
                f"{dist.get_world_size()} by torch's MPI: start the ranks with the mpiexec of that MPI"
            )
        return ProcessRankGroup(device, config.timeout_delta, barrier)
    except RuntimeError as error:
        raise LaunchEnvironmentError(
            f"cannot join the other {info.world_size - 1} ranks within --timeout {config.timeout}: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
