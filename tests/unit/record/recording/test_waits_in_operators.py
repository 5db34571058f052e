"""A thread that waits in a hook of autograd's does not compute; one that works there does."""

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import perfkit
from perfkit.records.rank import RankReport

WAIT_S = 0.03
STEPS = 8
SHORTEST = 0.7
"""Share of the wait that samples show at least: one is taken every 4 to 10 ms, and each end of a wait may lie between
two."""


def sleep() -> None:
    time.sleep(WAIT_S)


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(WAIT_S, lock.release).start()
    with lock:
        pass


def wait_for_a_queue() -> None:
    results: queue.Queue[int] = queue.Queue()
    threading.Timer(WAIT_S, results.put, [1]).start()
    results.get()


def work() -> None:
    ends = time.thread_time() + WAIT_S
    while time.thread_time() < ends:
        sum(range(100))


class Doing(torch.autograd.Function):
    """Does something in its backward pass."""

    @staticmethod
    def forward(ctx: "Doing", values: torch.Tensor, what: Callable[[], None]) -> torch.Tensor:
        ctx.what = what  # type: ignore[attr-defined]
        return values.clone()

    @staticmethod
    def backward(ctx: "Doing", grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.what()  # type: ignore[attr-defined]
        return grad, None


def trained(folder: Path, what: Callable[[], None], *, by_hook: bool = True) -> RankReport:
    """Return the report of a loop that does something in its backward passes, beside computation."""
    weights = torch.randn(64, 64, requires_grad=True)
    with perfkit.profile(folder / "run", schedule=f"wait=0,warmup=1,active={STEPS}") as prof:
        for _ in range(1 + STEPS):
            with prof.phase("forward"):
                values = torch.ones(64, 64) @ weights
                if by_hook:
                    values.register_hook(lambda _grad: what())  # type: ignore[no-untyped-call]
                else:
                    values = Doing.apply(values, what)  # type: ignore[no-untyped-call]
                loss = (values @ weights).square().mean()
            with prof.phase("backward"):
                loss.backward()  # type: ignore[no-untyped-call]
            prof.step()
    (run,) = perfkit.analyze(folder).runs
    return run.ranks[0]


@pytest.mark.parametrize("by_hook", [True, False])
@pytest.mark.parametrize("what", [sleep, wait_for_a_lock, wait_for_a_queue])
def test_waiting_in_backward_is_named_and_is_no_computation(
    what: Callable[[], None], by_hook: bool, tmp_path: Path
) -> None:
    rank = trained(tmp_path, what, by_hook=by_hook)
    waited_ns = sum(step.idle_ns.not_running for step in rank.steps) / STEPS
    assert waited_ns >= SHORTEST * WAIT_S * 1e9
    named = max((row for row in rank.idle.causes if row.cause == "not_running"), key=lambda row: row.total_ns)
    assert named.code is not None
    assert named.code.function == what.__name__
    operators_ns = sum(row.total_ns for row in rank.operators) / STEPS
    assert operators_ns <= (sum(step.wall_ns for step in rank.steps) / STEPS) - waited_ns


def test_work_in_a_hook_is_computation(tmp_path: Path) -> None:
    rank = trained(tmp_path, work)
    computed_ns = sum(step.exposed_ns.compute for step in rank.steps) / STEPS
    assert computed_ns >= WAIT_S * 1e9
    assert sum(step.idle_ns.not_running for step in rank.steps) / STEPS < 0.1 * WAIT_S * 1e9
