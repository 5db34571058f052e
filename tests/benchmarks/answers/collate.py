"""Pads sequences to one length in Python; mended: by torch."""

import torch
from torch import nn

from training import MENDED, SHAPE, Images, load, make_model


class Sequences(Images):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image, label = super().__getitem__(index)
        return image.flatten()[: 3072 - index % 8], label


def pad_batch(items: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = []
    for sequence, _ in items:
        row = [0.0] * 3072
        for place, value in enumerate(sequence.tolist()):
            row[place] = value
        rows.append(row)
    return torch.tensor(rows).view(-1, *SHAPE), torch.tensor([label for _, label in items])


def pad_quickly(items: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    padded = torch.zeros(len(items), 3072)
    for row, (sequence, _) in zip(padded, items, strict=True):
        row[: len(sequence)] = sequence
    return padded.view(-1, *SHAPE), torch.tensor([label for _, label in items])


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in load(Sequences(), collate_fn=pad_quickly if MENDED else pad_batch):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
