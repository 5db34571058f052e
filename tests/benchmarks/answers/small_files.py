"""Reads each image from a file per row; mended: from one file."""

import tempfile
from pathlib import Path

import torch
from torch import nn

from training import MENDED, SHAPE, Images, load, make_model


class Files(Images):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        rows = self.images[0].view(48, 64)
        for number, row in enumerate(rows):
            (self.folder / f"{number}").write_bytes(bytes(row.numpy()))
        (self.folder / "all").write_bytes(bytes(rows.numpy()))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return (self.read_whole() if MENDED else self.read_rows()), index % 10

    def read_rows(self) -> torch.Tensor:
        parts = []
        for number in range(48):
            with open(self.folder / f"{number}", "rb") as file:
                parts.append(file.read())
        return torch.frombuffer(bytearray().join(parts), dtype=torch.float32).view(SHAPE)

    def read_whole(self) -> torch.Tensor:
        return torch.frombuffer(bytearray((self.folder / "all").read_bytes()), dtype=torch.float32).view(SHAPE)


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in load(Files()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
