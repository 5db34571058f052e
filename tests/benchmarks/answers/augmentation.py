"""Brightens each image pixel by pixel; mended: all pixels at once."""

import torch
from torch import nn

from training import MENDED, Images, load, make_model


def colour_jitter(image: torch.Tensor) -> torch.Tensor:
    pixels = image.flatten().tolist()
    for place, pixel in enumerate(pixels):
        pixels[place] = min(1.0, 1.1 * pixel)
    return torch.tensor(pixels).view_as(image)


class Augmented(Images):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image, label = super().__getitem__(index)
        return (1.1 * image).clamp(max=1.0) if MENDED else colour_jitter(image), label


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in load(Augmented()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
