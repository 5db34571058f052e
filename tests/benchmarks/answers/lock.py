"""Waits for a lock that a thread holds while it uploads; mended: it uploads without the lock."""

import threading
import time
from typing import Final

import torch
from torch import nn

from training import MENDED, Images, load, make_model

lock: Final = threading.Lock()
losses: Final[list[float]] = []


def upload() -> None:
    while True:
        with lock:
            sent = losses[:]
            losses.clear()
            if not MENDED:
                send(sent)
        if MENDED:
            send(sent)
        time.sleep(0.001)


def send(_losses: list[float]) -> None:
    time.sleep(0.04)


def keep_loss(loss: torch.Tensor) -> None:
    with lock:
        losses.append(float(loss))


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    threading.Thread(target=upload, daemon=True).start()
    for images, labels in load(Images()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        keep_loss(loss)


if __name__ == "__main__":
    main()
