"""Rank 1 sleeps before its backward pass, in which a hook reduces a gradient and waits for it: rank 0 waits there."""

import time

import torch
import torch.distributed as dist

WAIT_S = 0.04


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    weights = torch.randn(64, 64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=1e-3)
    for _ in range(16):
        values = torch.ones(64, 64) @ weights
        values.register_hook(lambda grad: dist.all_reduce(grad))  # type: ignore[no-untyped-call]
        loss = (values @ weights).square().mean()
        if dist.get_rank() == 1:
            time.sleep(WAIT_S)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
