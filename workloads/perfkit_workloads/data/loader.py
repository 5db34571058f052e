"""The data loader: batches from a data set."""

import multiprocessing
import os
import sys
import threading
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch import multiprocessing as processes
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler

from perfkit.accelerators import device_types
from perfkit.errors import UsageError
from perfkit_workloads.data import DataOptions


def make_loader(
    dataset: Dataset[dict[str, Tensor]],
    sampler: Sampler[int],
    options: DataOptions,
    batch_size: int,
) -> DataLoader[Any]:
    """Load batches of `batch_size` samples in the sampler's order, the same for all options.

    An incomplete last batch is dropped, so that every step does the same work. Workers live as long as the loader, so
    that no epoch waits for them to start.

    Returns:
        A loader of dicts of tensors, `(batch_size, *field.shape)` each.

    Raises:
        UsageError: Pinned memory without an accelerator.
    """
    modules = [getattr(torch, kind, None) for kind in device_types()]
    if options.pin_memory and not any(module is not None and module.is_available() for module in modules):
        raise UsageError("pin_memory needs an accelerator, and none was found: remove it")
    common: dict[str, Any] = {"pin_memory": options.pin_memory, **_workers(options)}
    if options.read == "batched":
        batches = BatchSampler(sampler, batch_size, drop_last=True)
        return DataLoader(dataset, batch_size=None, sampler=batches, **common)
    return DataLoader(dataset, batch_size, sampler=sampler, drop_last=True, **common)


def _workers(options: DataOptions) -> dict[str, Any]:
    if options.num_workers == 0:
        return {"num_workers": 0}
    context = processes.get_context(options.worker_start)
    if options.worker_start == "forkserver":
        context.set_forkserver_preload(["perfkit_workloads.data.dataset", "perfkit_workloads.data.loader"])
    return {
        "num_workers": options.num_workers,
        "prefetch_factor": options.prefetch,
        "persistent_workers": True,
        "multiprocessing_context": context,
        "worker_init_fn": end_with_parent,
    }


def end_with_parent(_worker: int) -> None:
    """End this worker as soon as the process that reads from it has ended, for whatever reason.

    torch checks whether the worker's parent has changed, but the parent of a worker from a fork server is the server.
    """
    sys.excepthook = _report
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error, unless the reader has ended: then the thread that sends tensors loses its connection."""
    if not isinstance(error, (ConnectionError, EOFError)):
        sys.__excepthook__(kind, error, trace)


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
