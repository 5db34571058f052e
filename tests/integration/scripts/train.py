"""A training loop in one process that can end in several ways."""

import argparse
import multiprocessing
import os
import signal
import sys
import time

import torch
from model import Net  # type: ignore[import-not-found]


def train(steps: int, device: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net(32).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    helper = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1, device=device))])
    for _ in range(steps):
        model(torch.randn(8, 32, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        helper.step()


def term() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(20)


def stuck() -> None:
    """Wait where Python runs no handler until the call returns, as in a collective."""
    store = torch.distributed.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    print("stuck", flush=True)
    store.get("never")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--then", default="end")
    args = parser.parse_args()
    if args.then == "profile":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            train(args.steps, args.device)
        print(len(profiler.events()) > 0)
        return
    if args.then == "profile-late":
        train(4, args.device)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            train(args.steps, args.device)
        print(len(profiler.events()) > 0)
        return
    if args.then in ("fork", "spawn"):
        child = multiprocessing.get_context(args.then).Process(target=train, args=(args.steps, args.device))
        child.start()
        child.join()
        sys.exit(child.exitcode)
    train(args.steps, args.device)
    if args.then == "raise":
        raise ValueError("in step 8")
    if args.then == "exit":
        sys.exit(3)
    if args.then == "vanish":
        os._exit(0)
    if args.then in ("term", "interrupt", "stuck"):
        {"term": term, "interrupt": interrupt, "stuck": stuck}[args.then]()
    print("trained")


if __name__ == "__main__":
    main()
